CREATE TABLE orders (id BIGINT, placed TIMESTAMP, paid BOOLEAN, price DECIMAL(10, 2), note STRING,
  WATERMARK FOR placed AS placed - INTERVAL '10' SECONDS)
  WITH ('connector' = 'kafka', 'bootstrap.servers' = 'localhost:9092', 'topic' = 'o', 'rows_per_second' = '5000');
CREATE TABLE clicks (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '2' HOURS)
  WITH ('connector' = 'generator', 'rate' = '200');
CREATE TABLE visits (id BIGINT, day DATE, WATERMARK FOR day AS day - INTERVAL '1' DAY)
  WITH ('connector' = 'kafka', 'bootstrap.servers' = 'localhost:9092', 'topic' = 'v', 'rows-per-second' = 0.5);
SET allowed_lateness = '5 seconds';
SELECT o.id, o.note, o.paid, o.price, c.at, v.day
FROM orders o JOIN clicks c ON c.id = o.id AND c.at BETWEEN o.placed - INTERVAL '1' MINUTE AND o.placed
JOIN visits v ON v.id = o.id AND v.day <= o.placed AND v.day >= c.at - INTERVAL '2' DAYS;
