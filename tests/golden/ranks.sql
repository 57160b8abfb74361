-- The first rows of partitions: with their numbers, of a table; one of each, of a join, joined and grouped above.
SET output_mode = changelog;
CREATE TABLE customers (id BIGINT, segment STRING, op STRING)
  WITH ('connector' = 'file', 'path' = 'customers', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE orders (number BIGINT, customer BIGINT, price DECIMAL(12,2), d INT)
  WITH ('connector' = 'file', 'path' = 'orders', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE best WITH ('connector' = 'file', 'path' = 'out/best', 'format' = 'json');
CREATE TABLE last WITH ('connector' = 'file', 'path' = 'out/last', 'format' = 'json');
INSERT INTO best SELECT customer, number, rn FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY price DESC NULLS FIRST, number) AS rn FROM orders
  ) WHERE rn <= 3;
INSERT INTO last SELECT r.segment, count(*) AS n, sum(r.price) AS total FROM (
    SELECT upper(c.segment) AS segment, o.customer, o.price,
      ROW_NUMBER() OVER (PARTITION BY o.customer ORDER BY o.number DESC) AS place
    FROM orders o JOIN customers c ON c.id = o.customer
  ) r WHERE r.place = 1 AND r.price > 5 GROUP BY r.segment;
