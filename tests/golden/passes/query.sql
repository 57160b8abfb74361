CREATE TABLE a (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'memory', 'idle_timeout' = '1 minute', 'on_idle' = 'follow');
CREATE TABLE b (k BIGINT, n BIGINT, WATERMARK FOR n AS n - 5) TYPE Memory;
SELECT a.k, `#1`.n FROM a JOIN b AS `#1` ON a.k = `#1`.k;
