CREATE TABLE orders (id BIGINT, customer_id BIGINT, t TIMESTAMP, amount DOUBLE,
  WATERMARK FOR t AS t - INTERVAL '10' SECONDS) WITH ('connector' = 'file', 'path' = 'in/orders');
CREATE TABLE payments (order_id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'in/payments');
CREATE TABLE customers (id BIGINT, name STRING, region STRING, credit DOUBLE)
  WITH ('connector' = 'file', 'path' = 'tables/customers', 'refresh' = '30 seconds');
CREATE TABLE blocked (id BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://me:topsecret@db/shop',
  'dbtable' = 'public.blocked', 'user' = 'me', 'password' = 'topsecret');
SELECT o.id, upper(c.name) AS name, p.t FROM orders o
LEFT JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.id = o.customer_id AND c.credit > o.amount
  AND c.region = 'eu' AND o.amount > 0
JOIN payments p ON p.order_id = o.id AND p.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR
LEFT ANTI JOIN blocked FOR SYSTEM_TIME AS OF PROCTIME() AS b ON b.id = o.customer_id
WHERE c.name <> 'nobody';
