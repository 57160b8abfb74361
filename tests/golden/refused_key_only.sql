-- fail=unbounded-state
CREATE TABLE a (t BIGINT, k STRING, deadline BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
SELECT a.t, b.t AS u FROM a JOIN b ON a.k = b.k AND (b.t <= a.t + 5 OR a.k = 'x') AND b.t <= a.deadline;
