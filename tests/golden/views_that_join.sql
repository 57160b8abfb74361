CREATE TABLE orders (id BIGINT, t TIMESTAMP, amount INT, WATERMARK FOR t AS t - INTERVAL '10' SECONDS) TYPE Memory;
CREATE TABLE deliveries (id BIGINT, t TIMESTAMP, cost INT, WATERMARK FOR t AS t - INTERVAL '1' MINUTE) TYPE Memory;
CREATE TABLE refunds (id BIGINT, t TIMESTAMP, reason STRING, WATERMARK FOR t AS t - INTERVAL '1' MINUTE) TYPE Memory;
CREATE VIEW delivered AS
  SELECT o.id, o.t AS ordered_at, d.t AS delivered_at, o.amount - coalesce(d.cost, 0) AS earned
  FROM orders o LEFT JOIN deliveries d ON d.id = o.id AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR
  WHERE d.cost IS NULL OR d.cost < o.amount;
SELECT r.id, r.reason, od.ordered_at, od.earned
FROM refunds r
LEFT JOIN delivered od ON od.id = r.id AND r.t BETWEEN od.ordered_at AND od.ordered_at + INTERVAL '1' DAY
WHERE od.earned > 0 OR od.earned IS NULL;
