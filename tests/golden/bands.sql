CREATE MAPPING matched TYPE Console;
CREATE MAPPING nearby TYPE Console;
CREATE TABLE trades (symbol STRING, price DECIMAL(10,2), size INT, x DOUBLE, t TIMESTAMP,
  WATERMARK FOR t AS t - INTERVAL '10' SECONDS) WITH ('connector' = 'memory');
CREATE TABLE quotes (symbol STRING, bid DECIMAL(12,4), ask DECIMAL(12,4), size INT, x DOUBLE, big BIGINT, t TIMESTAMP,
  valid_from TIMESTAMP, valid_to TIMESTAMP, day DATE,
  WATERMARK FOR t AS t - INTERVAL '1' MINUTE) WITH ('connector' = 'memory');
INSERT INTO matched
SELECT a.symbol, a.price, b.bid FROM trades a LEFT JOIN quotes b
  ON a.symbol = b.symbol AND b.t BETWEEN a.t - INTERVAL '1' DAY AND a.t
  AND a.price BETWEEN b.bid - 0.5 AND b.ask + 0.125
  AND a.t >= b.valid_from AND a.t < b.valid_to
  AND a.size BETWEEN b.size - 10 AND b.size + 20
  AND a.x - b.x < 0.5 AND a.price <= b.big
  AND CAST(a.t AS DATE) <= b.day + 3;
INSERT INTO nearby
SELECT a.size, b.size AS other FROM trades a JOIN quotes b
  ON b.t BETWEEN a.t - INTERVAL '1' DAY AND a.t AND a.size BETWEEN b.size - 10 AND b.size + 10;
