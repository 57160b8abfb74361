CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
SELECT a.t, b.t AS u FROM a JOIN b ON a.t = b.t AND xpath_int(a.k, b.k) % 2 = 0 AND parse_url(a.k, b.k) = 'a';
