CREATE TABLE shop (id BIGINT, o TIMESTAMP, d TIMESTAMP, WATERMARK FOR o AS o - INTERVAL '1' SECOND,
  WATERMARK FOR d AS d - INTERVAL '2' SECONDS) WITH ('connector' = 'memory');
CREATE TABLE refunds (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
SET watermark_rule = 'limit';
SELECT l.o, r.t FROM shop l JOIN refunds r ON r.t BETWEEN l.d + INTERVAL '3' SECONDS AND l.d + INTERVAL '9' SECONDS;
