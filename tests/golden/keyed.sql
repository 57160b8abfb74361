-- tables with primary keys: upserts from Kafka, in the order of a column; a filter that stands above
SET output_mode = changelog;
CREATE TABLE customers (id BIGINT PRIMARY KEY NOT ENFORCED, segment STRING, active BOOLEAN, updated_at TIMESTAMP)
  WITH ('connector' = 'kafka', 'topic' = 'customers', 'bootstrap.servers' = 'kafka:9092', 'format' = 'upsert-json',
        'sequence.by' = 'updated_at', 'tombstones' = '2 days');
CREATE TABLE lines (order_nr BIGINT, line INT, customer BIGINT, price DECIMAL(10,2), op STRING,
                    PRIMARY KEY (order_nr, line) NOT ENFORCED)
  WITH ('connector' = 'file', 'path' = 'in/lines', 'format' = 'json', 'op.column' = 'op');
CREATE VIEW present AS SELECT id, upper(segment) AS segment FROM customers WHERE active;
SELECT l.order_nr, l.price, p.segment FROM lines l LEFT JOIN present p ON p.id = l.customer;
