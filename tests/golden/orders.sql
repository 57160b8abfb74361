CREATE MAPPING orders (order_id BIGINT, order_time TIMESTAMP, item_id BIGINT)
  TYPE Kafka OPTIONS ('bootstrap.servers' = 'localhost:9092', 'topic' = 'orders', 'format' = 'json');
CREATE MAPPING deliveries (delivery_id BIGINT, order_id BIGINT, delivery_time TIMESTAMP, address STRING)
  TYPE Kafka OPTIONS ('bootstrap.servers' = 'localhost:9092', 'topic' = 'deliveries', 'format' = 'json');
CREATE VIEW o AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE orders, DESCRIPTOR(order_time), INTERVAL '10' SECONDS));
CREATE VIEW d AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE deliveries, DESCRIPTOR(delivery_time), INTERVAL '1' MINUTE));
SELECT *
FROM o JOIN d ON d.order_id = o.order_id
             AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;
