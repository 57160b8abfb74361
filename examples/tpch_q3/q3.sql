-- TPC-H's query 3 as a stream: customers, orders and lines come, go and are updated, and so does the result. ORDER BY and
-- LIMIT are left out: there is no last row of what goes on.
SET output_mode = changelog;
CREATE TABLE customer (c_custkey BIGINT, c_nationkey BIGINT, c_mktsegment STRING, d INT)
  WITH ('connector' = 'file', 'path' = '.examples/tpch_q3/in/customer', 'format' = 'parquet', 'maxFilesPerTrigger' = '1',
        'diff.column' = 'd');
CREATE TABLE orders (o_orderkey BIGINT, o_custkey BIGINT, o_orderdate DATE, o_shippriority INT, d INT)
  WITH ('connector' = 'file', 'path' = '.examples/tpch_q3/in/orders', 'format' = 'parquet', 'maxFilesPerTrigger' = '1',
        'diff.column' = 'd');
CREATE TABLE lineitem (l_orderkey BIGINT, l_linenumber INT, l_suppkey BIGINT, l_extendedprice DECIMAL(15,2),
    l_discount DECIMAL(15,2), l_shipdate DATE, d INT)
  WITH ('connector' = 'file', 'path' = '.examples/tpch_q3/in/lineitem', 'format' = 'parquet', 'maxFilesPerTrigger' = '1',
        'diff.column' = 'd');
CREATE TABLE revenue WITH ('connector' = 'file', 'path' = '.examples/tpch_q3/out/revenue', 'format' = 'parquet');

INSERT INTO revenue
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority;
