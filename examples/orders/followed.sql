-- What became of each order: was it paid within a day, was it sent within four? Every order comes out once, at the latest
-- when neither can happen any more. Messages that come more than ten minutes late are kept beside the result.
CREATE TABLE orders (order_id BIGINT, ordered_at TIMESTAMP, amount BIGINT,
    WATERMARK FOR ordered_at AS ordered_at - INTERVAL '10' MINUTES)
  WITH ('connector' = 'file', 'path' = '.examples/orders/in/orders', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE payments (order_id BIGINT, paid_at TIMESTAMP, method STRING,
    WATERMARK FOR paid_at AS paid_at - INTERVAL '10' MINUTES)
  WITH ('connector' = 'file', 'path' = '.examples/orders/in/payments', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE shipments (order_id BIGINT, sent_at TIMESTAMP, parcel BIGINT,
    WATERMARK FOR sent_at AS sent_at - INTERVAL '10' MINUTES)
  WITH ('connector' = 'file', 'path' = '.examples/orders/in/shipments', 'format' = 'parquet', 'maxFilesPerTrigger' = '1');
CREATE TABLE followed WITH ('connector' = 'file', 'path' = '.examples/orders/out/followed', 'format' = 'parquet');
CREATE TABLE late WITH ('connector' = 'file', 'path' = '.examples/orders/out/late', 'format' = 'json');
SET late_output = late;

INSERT INTO followed
SELECT o.order_id, o.ordered_at, o.amount, p.paid_at, s.sent_at,
       CASE WHEN p.order_id IS NULL THEN 'not paid, ' ELSE 'paid, ' END
       || CASE WHEN s.order_id IS NULL THEN 'not sent' ELSE 'sent' END AS state
FROM orders o
LEFT JOIN payments p
  ON p.order_id = o.order_id AND p.paid_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '1' DAY
LEFT JOIN shipments s
  ON s.order_id = o.order_id AND s.sent_at BETWEEN o.ordered_at AND o.ordered_at + INTERVAL '4' DAYS;
