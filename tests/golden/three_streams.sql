CREATE TABLE orders (id BIGINT, item BIGINT, o TIMESTAMP, WATERMARK FOR o AS o - INTERVAL '10' SECONDS)
  WITH ('connector' = 'kafka', 'topic' = 'orders', 'format' = 'json', 'bootstrap.servers' = 'localhost:9092');
CREATE TABLE deliveries (order_id BIGINT, d TIMESTAMP, cost DOUBLE, WATERMARK FOR d AS d - INTERVAL '1' MINUTE)
  WITH ('connector' = 'kafka', 'topic' = 'deliveries', 'format' = 'json', 'bootstrap.servers' = 'localhost:9092');
CREATE TABLE refunds (order_id BIGINT, r TIMESTAMP, amount DOUBLE, WATERMARK FOR r AS r - INTERVAL '1' MINUTE)
  WITH ('connector' = 'kafka', 'topic' = 'refunds', 'format' = 'json', 'bootstrap.servers' = 'localhost:9092');
SELECT o.id, o.item, d.d, r.r
FROM orders o
LEFT JOIN deliveries d ON d.order_id = o.id AND d.d BETWEEN o.o AND o.o + INTERVAL '1' HOUR AND d.cost > 0
LEFT JOIN refunds r ON r.order_id = o.id AND r.r BETWEEN o.o AND o.o + INTERVAL '1' DAY
  AND coalesce(d.cost, 0) <= r.amount AND o.item + 1 > 0
WHERE o.item <> 7;
