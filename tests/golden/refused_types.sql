-- fail=wrong-types
CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'memory');
SELECT a.t, b.ts FROM a JOIN b ON a.t BETWEEN b.ts AND b.ts + INTERVAL '1' HOUR;
