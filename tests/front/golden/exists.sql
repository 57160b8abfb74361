CREATE TABLE l (t BIGINT, k STRING, v BIGINT, WATERMARK FOR t AS t - 5) TYPE Memory;
CREATE TABLE r (t BIGINT, k STRING, w BIGINT, WATERMARK FOR t AS t - 5) TYPE Memory;
-- inside, a bare name means the sub-query's column; outside the sub-query its columns are not there
SELECT t, k FROM l
WHERE v > 0 AND EXISTS (SELECT 1 FROM r WHERE k = l.k AND t BETWEEN l.t AND l.t + 5 AND w > v);
SELECT * FROM l AS a
WHERE NOT EXISTS (SELECT * FROM l AS b WHERE b.k = a.k AND b.t BETWEEN a.t + 1 AND a.t + 9);
SELECT * FROM l LEFT ANTI JOIN r USING (t, k);
