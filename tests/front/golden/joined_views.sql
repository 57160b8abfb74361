CREATE TABLE o (id BIGINT, t BIGINT, a INT, WATERMARK FOR t AS t - 5) TYPE Memory;
CREATE TABLE d (id BIGINT, t BIGINT, b INT, x INT, WATERMARK FOR t AS t - 5) TYPE Memory;
CREATE TABLE r (id BIGINT, t BIGINT, c INT, WATERMARK FOR t AS t - 5) TYPE Memory;
CREATE SINK s WITH ('connector' = 'memory');
CREATE VIEW od AS
  SELECT o.id, o.t AS ot, d.t AS dt, o.a + d.b AS s FROM o JOIN d ON d.id = o.id AND d.t BETWEEN o.t AND o.t + 5
  WHERE d.x > 0 OR o.a = 1;
-- a view that joins, on the preserved side
SELECT od.*, r.c, s * 2 AS twice FROM od LEFT JOIN r ON r.id = od.id AND r.t BETWEEN od.dt AND od.dt + 9 AND r.c < s;
-- twice; and USING
SELECT * FROM od JOIN od AS od2 USING (id) WHERE od2.ot > od.dt;
-- a sub-query on the padded side, with a column that would not be NULL
SELECT r.id, bc.v, bc.one FROM r LEFT JOIN (
  SELECT d.t, o.a AS v, coalesce(o.a, d.b) + 1 AS one FROM d LEFT JOIN o ON o.t = d.t WHERE o.a IS NULL OR o.a > d.b
) bc ON bc.t BETWEEN r.t AND r.t + 5 AND bc.one > 1;
-- the same where either input may be missing
SELECT r.id, x.one FROM r LEFT JOIN (SELECT d.t, 1 AS one FROM d FULL JOIN o ON o.t = d.t) x ON x.t = r.t;
-- USING of FULL over a computed column
SELECT id FROM (SELECT coalesce(d.id, o.id) + 1 AS id FROM d LEFT JOIN o ON o.t = d.t) x FULL JOIN r USING (id);
-- views of views, with WHERE at each; the names of WITH; column names of an alias
WITH late AS (SELECT od.*, r.t AS rt FROM od JOIN r ON r.id = od.id WHERE od.s > 1), later AS (SELECT * FROM late WHERE rt > ot)
SELECT y.a, y.d FROM later AS y (a, b, c, d, e) WHERE y.e > 0;
-- in parentheses with a name; an alias with a blank; EXISTS inside
SELECT `x y`.a, z.id FROM (o JOIN (SELECT b, t AS dt FROM d) d ON d.dt = o.t) `x y`
  JOIN (SELECT id, t FROM r WHERE EXISTS (SELECT 1 FROM d WHERE d.t = r.t)) z ON z.t = dt;
