CREATE TABLE a (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 7) WITH ('connector' = 'memory');
SET lateness = 'join';
SET allowed_lateness = 20;
SELECT a.n, b.n AS m FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t - 3 AND a.t + 9;
