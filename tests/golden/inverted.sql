CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
SELECT a.t, b.t AS u FROM a FULL JOIN b ON a.t BETWEEN b.t + 3 AND b.t + 1;
