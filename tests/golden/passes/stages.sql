CREATE TABLE p (id INT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'memory');
SELECT p.v + 1 AS more FROM p WHERE p.v > 3;
