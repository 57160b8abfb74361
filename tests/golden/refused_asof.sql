-- fail=asof-condition
CREATE TABLE l (k STRING, t BIGINT, u BIGINT, v INT, WATERMARK FOR t AS t - 5, WATERMARK FOR u AS u - 5)
  WITH ('connector' = 'memory');
CREATE TABLE r (k STRING, t BIGINT, v INT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
SELECT l.t FROM l ASOF JOIN r ON l.k = r.k;
SELECT l.t FROM l ASOF JOIN r ON l.t >= r.t AND r.t >= l.t - 9;
SELECT l.t FROM l ASOF JOIN r MATCH_CONDITION (l.t = r.t);
SELECT l.t FROM l ASOF JOIN r MATCH_CONDITION (r.t BETWEEN l.t - 5 AND l.t);
SELECT l.t FROM l ASOF JOIN r MATCH_CONDITION (l.v >= r.v);
SELECT l.t FROM l ASOF JOIN r MATCH_CONDITION (l.t >= r.t AND r.v > 0);
SELECT l.t FROM l ASOF JOIN r MATCH_CONDITION (l.t >= r.t) ON l.k = r.k AND l.v <> r.v AND l.u >= r.t;
SELECT a.t FROM l a ASOF JOIN (l JOIN r ON l.t = r.t) MATCH_CONDITION (a.t >= r.t);
