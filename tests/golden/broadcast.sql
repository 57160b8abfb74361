CREATE TABLE orders (id BIGINT, region STRING, amount INT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'memory', 'rows_per_second' = '5000');
CREATE TABLE rates (region STRING, rate DOUBLE, limit_ INT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'memory', 'rows_per_second' = '2');
CREATE TABLE alarms (code INT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '10' SECONDS) WITH ('connector' = 'memory');
CREATE MAPPING hot TYPE Console;
CREATE MAPPING seen TYPE Console;
CREATE MAPPING one_task TYPE Console;
CREATE MAPPING unknown_rates TYPE Console;
INSERT INTO hot
SELECT /*+ BROADCAST(r) */ o.id, r.rate FROM orders o FULL JOIN rates r
  ON o.region = r.region AND o.t BETWEEN r.t AND r.t + INTERVAL '1' HOUR;
INSERT INTO seen
SELECT /*+ MAPJOIN(r) */ r.region FROM rates r LEFT SEMI JOIN orders o
  ON o.region = r.region AND o.t BETWEEN r.t AND r.t + INTERVAL '1' HOUR;
INSERT INTO one_task
SELECT o.id, r.rate, a.code FROM orders o JOIN rates r ON o.amount * r.rate > 100
  JOIN alarms a ON a.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR AND a.t BETWEEN r.t AND r.t + INTERVAL '1' HOUR;
INSERT INTO unknown_rates
SELECT a.code, b.code AS other, o.id FROM alarms a JOIN alarms b ON a.code <> b.code
  JOIN orders o ON o.t BETWEEN a.t AND a.t + INTERVAL '1' HOUR AND o.t BETWEEN b.t AND b.t + INTERVAL '1' HOUR;
