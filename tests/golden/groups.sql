-- Groups over all rows of changing tables: over a join, of aggregates that add up and of others; of one that is
-- joined with nothing; and all rows of what is joined with groups.
SET output_mode = changelog;
CREATE TABLE customers (id BIGINT, segment STRING, op STRING)
  WITH ('connector' = 'file', 'path' = 'customers', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE orders (number BIGINT, customer BIGINT, price DECIMAL(12,2), d INT)
  WITH ('connector' = 'file', 'path' = 'orders', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE sales WITH ('connector' = 'file', 'path' = 'out/sales', 'format' = 'json');
CREATE TABLE busy WITH ('connector' = 'file', 'path' = 'out/busy', 'format' = 'json');
INSERT INTO sales SELECT c.segment, sum(o.price) AS total, count(DISTINCT c.id) AS customers
  FROM orders o LEFT JOIN customers c ON c.id = o.customer GROUP BY c.segment HAVING count(*) > 1;
INSERT INTO busy SELECT count(*) AS n, max(g.total) AS most
  FROM (SELECT customer, count(*) AS n, avg(price) AS total FROM orders GROUP BY customer) g
  JOIN customers c ON c.id = g.customer AND g.n > 10;
