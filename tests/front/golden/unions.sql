CREATE TABLE a (k STRING, t BIGINT, n INT, WATERMARK FOR t AS t - 1) TYPE Memory;
CREATE TABLE b (k STRING, t BIGINT, n BIGINT, WATERMARK FOR t AS t - 2) TYPE Memory;
CREATE VIEW u AS
  SELECT a.k, a.t, b.t AS bt, a.n FROM a LEFT JOIN b ON a.t = b.t WHERE a.k <> 'z'
  UNION ALL SELECT k, t, t, n + 1 FROM b WHERE n > 3;
WITH both AS (SELECT x.k, x.t, x.n * 2 AS n FROM u x WHERE x.k = 'y' UNION ALL SELECT a.k, b.t, 0 FROM a JOIN b ON a.t = b.t)
SELECT k, t, n FROM both UNION ALL SELECT a.k, a.t, a.t FROM a LEFT SEMI JOIN b ON a.t = b.t;
SELECT y.k, y.n FROM u y JOIN a ON a.t = y.t;
