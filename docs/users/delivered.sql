CREATE MAPPING orders (order_id BIGINT, order_time TIMESTAMP, item_id BIGINT)
  TYPE Kafka OPTIONS ('bootstrap.servers' = 'localhost:9092', 'topic' = 'orders', 'format' = 'json');
CREATE MAPPING deliveries (delivery_id BIGINT, order_id BIGINT, delivery_time TIMESTAMP, address STRING)
  TYPE Kafka OPTIONS ('bootstrap.servers' = 'localhost:9092', 'topic' = 'deliveries', 'format' = 'json');
CREATE MAPPING delivered
  TYPE File OPTIONS ('path' = 'out/delivered', 'format' = 'parquet');

-- How late may rows come? Orders up to 10 seconds after the newest one, deliveries up to a minute.
CREATE VIEW o AS
  SELECT * FROM TABLE(IMPOSE_ORDER(TABLE orders, DESCRIPTOR(order_time), INTERVAL '10' SECONDS));
CREATE VIEW d AS
  SELECT * FROM TABLE(IMPOSE_ORDER(TABLE deliveries, DESCRIPTOR(delivery_time), INTERVAL '1' MINUTE));

INSERT INTO delivered
SELECT o.order_id, o.order_time, d.delivery_time, d.address
FROM o LEFT JOIN d
  ON d.order_id = o.order_id
 AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;
