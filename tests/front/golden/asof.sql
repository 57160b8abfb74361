-- title: ASOF joins, as Spark, Snowflake, DuckDB and ClickHouse write them
CREATE TABLE a (t BIGINT, k STRING, v INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, w INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
SELECT a.t, b.t AS bt FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k;
SELECT a.t, x.t AS bt FROM a LEFT OUTER ASOF JOIN b x MATCH_CONDITION (a.t > x.t AND x.t >= a.t - 5);
SELECT a.t, b.t AS bt FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t;
SELECT * FROM a INNER ASOF JOIN b MATCH_CONDITION (a.t >= b.t) USING (k);
SELECT * FROM a LEFT ASOF JOIN b USING (k, t);
CREATE VIEW v AS SELECT a.t, b.w AS match_condition FROM a ASOF JOIN b MATCH_CONDITION (a.t >= b.t) WHERE b.w > 0;
SELECT y.match_condition FROM v y ASOF JOIN b ON y.t >= b.t;
