CREATE TABLE orders (id BIGINT, ordered DATE, shipped TIMESTAMP,
  WATERMARK FOR ordered AS ordered - INTERVAL '1' DAY,
  WATERMARK FOR shipped AS shipped - INTERVAL '1' HOUR) WITH ('connector' = 'memory');
CREATE TABLE returns (id BIGINT, returned TIMESTAMP, WATERMARK FOR returned AS returned - INTERVAL '1' HOUR)
  WITH ('connector' = 'memory');
SELECT o.id, r.returned FROM orders o JOIN returns r
  ON o.id <=> r.id AND r.returned BETWEEN o.shipped AND o.shipped + INTERVAL '30' DAYS
 AND CAST(r.returned AS DATE) <= o.ordered + 90
 AND o.shipped >= o.ordered;
