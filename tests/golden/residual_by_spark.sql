CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
SELECT a.t, b.t AS u FROM a JOIN b ON a.t = b.t AND xxhash64(a.k, b.k) % 2 = 0 AND soundex(concat(a.k, b.k)) = 'a';
