CREATE TABLE s1 (time BIGINT, WATERMARK FOR time AS time - 0) WITH ('connector' = 'memory');
CREATE TABLE s2 (time BIGINT, WATERMARK FOR time AS time - 0) WITH ('connector' = 'memory');
SET watermark_rule = limit;
SELECT i1.time AS t1, i2.time AS t2
FROM s1 i1 JOIN s2 i2 ON i2.time BETWEEN i1.time - 1 AND i1.time + 4;
