-- A windowed aggregate over a join of two windowed aggregates.
CREATE MAPPING orders (item BIGINT, price DECIMAL(10,2), at TIMESTAMP) TYPE File
  OPTIONS ('path' = 'orders', 'format' = 'json');
CREATE MAPPING clicks (item BIGINT, at TIMESTAMP) TYPE File OPTIONS ('path' = 'clicks', 'format' = 'json');
CREATE VIEW o AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE orders, DESCRIPTOR(at), INTERVAL '5' SECONDS));
CREATE VIEW c AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE clicks, DESCRIPTOR(at), INTERVAL '1' MINUTE));
CREATE VIEW sold AS
SELECT window_end, item, sum(price) AS price, count(*) AS orders
FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, item;
CREATE VIEW visits AS
SELECT window_start, window_end, item, count(*) AS clicks
FROM TABLE(SESSION(TABLE c, DESCRIPTOR(at), INTERVAL '2' MINUTES)) GROUP BY window_start, window_end, item
HAVING count(*) > 1;
CREATE VIEW both AS
SELECT sold.window_end AS at, sold.item, sold.price, visits.clicks
FROM sold LEFT JOIN visits ON visits.item = sold.item
  AND visits.window_end BETWEEN sold.window_end - INTERVAL '10' MINUTES AND sold.window_end;
SELECT window_end, sum(price) AS price, sum(clicks) AS clicks, count(DISTINCT item) AS items
FROM TABLE(TUMBLE(TABLE both, DESCRIPTOR(at), INTERVAL '1' HOUR)) GROUP BY window_start, window_end;
