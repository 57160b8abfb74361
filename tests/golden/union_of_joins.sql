CREATE TABLE shop (id BIGINT, t TIMESTAMP, amount INT, WATERMARK FOR t AS t - INTERVAL '10' SECONDS) TYPE Memory;
CREATE TABLE web (id BIGINT, t TIMESTAMP, amount BIGINT, WATERMARK FOR t AS t - INTERVAL '1' MINUTE)
  WITH ('connector' = 'memory', 'idle_timeout' = '5 MINUTES');
CREATE TABLE visits (id BIGINT, t TIMESTAMP, page STRING, WATERMARK FOR t AS t - INTERVAL '5' SECONDS)
  WITH ('connector' = 'memory', 'idle_timeout' = '5 MINUTES');
CREATE TABLE returns (id BIGINT, t TIMESTAMP, why STRING, WATERMARK FOR t AS t - INTERVAL '1' MINUTE) TYPE Memory;
CREATE VIEW sold AS
  SELECT id, t, amount, 'shop' AS place FROM shop
  UNION ALL
  SELECT w.id, w.t, w.amount, v.page FROM web w
  LEFT JOIN visits v ON v.id = w.id AND v.t BETWEEN w.t - INTERVAL '1' HOUR AND w.t
  WHERE w.amount > 0;
SELECT s.id, s.place, upper(r.why) AS why FROM sold s
JOIN returns r ON r.id = s.id AND r.t BETWEEN s.t AND s.t + INTERVAL '7' DAYS
WHERE s.place <> 'test' AND lower(s.place) <> upper(r.why);
