-- title: columns of USING are put out once; FULL merges both sides
CREATE TABLE a (t BIGINT, k STRING, v INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, w INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE SINK out (k VARCHAR(9), a BIGINT, missing DATE) WITH ('connector' = 'file', 'path' = 'x');
SELECT * FROM a FULL JOIN b USING (k, t);
SELECT *, k FROM a RIGHT JOIN b USING (k, t);
INSERT INTO out (a, K) SELECT v, k FROM a JOIN b USING (t, k);
INSERT INTO out (a, K) SELECT v, k FROM a JOIN b USING (t, k);
