-- Each order with its delivery within the hour, from two topics into a table of PostgreSQL, exactly once.
-- KAFKA, DATABASE and SECRETS are variables of the process: compose.yaml, kubernetes.yaml and the unit set them.
CREATE TABLE orders (
  order_id BIGINT, order_time TIMESTAMP, item_id BIGINT,
  WATERMARK FOR order_time AS order_time - INTERVAL '10' SECONDS
) WITH (
  'connector' = 'kafka', 'bootstrap.servers' = '${KAFKA}', 'topic' = 'orders', 'format' = 'json',
  'idle_timeout' = '30 seconds'
);

CREATE TABLE deliveries (
  delivery_id BIGINT, order_id BIGINT, delivery_time TIMESTAMP, address STRING,
  WATERMARK FOR delivery_time AS delivery_time - INTERVAL '1' MINUTE
) WITH (
  'connector' = 'kafka', 'bootstrap.servers' = '${KAFKA}', 'topic' = 'deliveries', 'format' = 'json',
  'idle_timeout' = '30 seconds'
);

CREATE SINK delivered WITH (
  'connector' = 'postgres', 'url' = 'postgresql://${DATABASE}', 'password' = FROM FILE '${SECRETS}/db_password',
  'table' = 'public.delivered'
);

-- A job whose state grows beyond this stops, and says why.
SET max_rows = 10000000;

INSERT INTO delivered
SELECT o.order_id, o.order_time, d.delivery_time, d.address
FROM orders o LEFT JOIN deliveries d
  ON d.order_id = o.order_id
 AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR;
