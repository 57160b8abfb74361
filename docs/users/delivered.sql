CREATE TABLE orders (
  order_id BIGINT, order_time TIMESTAMP, item_id BIGINT,
  -- Orders come up to 10 seconds after the newest one, deliveries up to a minute.
  WATERMARK FOR order_time AS order_time - INTERVAL '10' SECONDS
) WITH ('connector' = 'kafka', 'bootstrap.servers' = 'localhost:9092', 'topic' = 'orders', 'format' = 'json');
CREATE TABLE deliveries (
  delivery_id BIGINT, order_id BIGINT, delivery_time TIMESTAMP, address STRING,
  WATERMARK FOR delivery_time AS delivery_time - INTERVAL '1' MINUTE
) WITH ('connector' = 'kafka', 'bootstrap.servers' = 'localhost:9092', 'topic' = 'deliveries', 'format' = 'json');
CREATE SINK delivered WITH ('connector' = 'file', 'path' = 'out/delivered', 'format' = 'parquet');

-- Short names for all queries below.
CREATE VIEW o AS SELECT * FROM orders;
CREATE VIEW d AS SELECT * FROM deliveries;

INSERT INTO delivered
SELECT o.order_id, o.order_time, d.delivery_time, d.address
FROM o LEFT JOIN d
  ON d.order_id = o.order_id
 AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;
