-- Each block is a statement after the declarations of test_refused.py, headed by the error's code and place.

-- fail=syntax 1:14
SELECT a FRM l
-- fail=syntax 1:8
SELECT 'abc
-- fail=not-supported 1:1
DROP TABLE l
-- fail=not-supported 1:1
SELCT 1
-- fail=unknown-table 1:15
SELECT * FROM nosuch
-- fail=unknown-column 1:10
SELECT l.nosuch FROM l
-- fail=unknown-column 1:8
SELECT "abc" FROM l
-- fail=unknown-table 1:8
SELECT x.t FROM l
-- fail=ambiguous-column 1:8
SELECT t FROM l, r
-- fail=duplicate-name 1:22
SELECT 1 FROM l JOIN l ON 1 = 1
-- fail=duplicate-column 1:1
INSERT INTO f SELECT * FROM l JOIN r ON l.t = r.t
-- fail=column-count 1:1
INSERT INTO f (a, b) SELECT l.t FROM l
-- fail=unknown-sink 1:13
INSERT INTO g SELECT l.t FROM l
-- fail=not-supported 1:32
SELECT k AS kk FROM l ORDER BY l.k
-- fail=not-supported 1:23
SELECT k FROM l LIMIT 1
-- fail=not-supported 1:8
SELECT sum(v) OVER (ORDER BY t) FROM l
-- fail=not-supported 1:35
SELECT l.t FROM l ASOF RIGHT JOIN r ON l.t >= r.t
-- fail=not-supported 1:34
SELECT l.t FROM l FULL ASOF JOIN r ON l.t >= r.t
-- fail=not-supported 1:34
SELECT l.t FROM l ASOF SEMI JOIN r ON l.t >= r.t
-- fail=not-supported 1:24
SELECT l.t FROM l JOIN r MATCH_CONDITION (l.t >= r.t)
-- fail=syntax
SELECT l.t FROM l ASOF JOIN r MATCH_CONDITION l.t >= r.t
-- fail=unknown-column 1:57
SELECT l.t FROM l ASOF JOIN r MATCH_CONDITION (l.t >= r.nosuch)
-- fail=nondeterministic
SELECT l.t FROM l ASOF JOIN r MATCH_CONDITION (l.t >= r.t + rand())
-- fail=not-a-table
SELECT l.t FROM l JOIN r FOR SYSTEM_TIME AS OF PROCTIME() ON l.t = r.t
-- fail=not-supported
SELECT t FROM (SELECT t FROM l UNION SELECT t FROM r) u
-- fail=nondeterministic 1:43
SELECT l.t FROM l JOIN r ON l.t = r.t AND rand() > 0
-- fail=nondeterministic 1:25
CREATE VIEW v AS SELECT uuid() AS id FROM l
-- fail=not-supported 1:8
SELECT now() FROM l
-- fail=not-supported
SELECT current_timestamp() FROM l
-- fail=already-ordered 1:54
SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE l, DESCRIPTOR(t), 5)) x
-- fail=not-supported
SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE(SELECT * FROM l WHERE v > 1), DESCRIPTOR(v), 5)) x
-- fail=bad-lag
SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE p, DESCRIPTOR(ts), 5)) x
-- fail=bad-duration
SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE p, DESCRIPTOR(ts), INTERVAL '1' MONTH)) x
-- fail=wrong-type
SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE p, DESCRIPTOR(s), 5)) x
-- fail=unknown-column
SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE p, DESCRIPTOR(x), 5)) x
-- fail=unknown-type 1:19
CREATE TABLE x (a FOO) WITH ('connector' = 'kafka')
-- fail=unknown-connector
CREATE MAPPING x TYPE Kafkaa
-- fail=unknown-connector
CREATE MAPPING x OPTIONS ()
-- fail=duplicate-name 1:14
CREATE TABLE L (a INT) TYPE Memory
-- fail=bad-lag
CREATE TABLE q (t BIGINT, WATERMARK FOR t AS t - INTERVAL '1' SECOND) TYPE Memory
-- fail=bad-lag
CREATE TABLE q (t TIMESTAMP, WATERMARK FOR t AS u - 5) TYPE Memory
-- fail=not-supported
CREATE TABLE q (t TIMESTAMP, PRIMARY KEY (t) ENFORCED) TYPE Memory
-- fail=not-supported
CREATE TABLE q (t TIMESTAMP PRIMARY KEY ENFORCED) TYPE Memory
-- fail=not-supported
CREATE TABLE q (t TIMESTAMP, CONSTRAINT c UNIQUE (t)) TYPE Memory
-- fail=primary-key
CREATE SINK q (t TIMESTAMP PRIMARY KEY NOT ENFORCED) TYPE Memory
-- fail=primary-key
CREATE TABLE q (t TIMESTAMP, PRIMARY KEY (u) NOT ENFORCED) TYPE Memory
-- fail=primary-key
CREATE TABLE q (t TIMESTAMP, PRIMARY KEY (t, T) NOT ENFORCED) TYPE Memory
-- fail=primary-key
CREATE TABLE q (t TIMESTAMP PRIMARY KEY NOT ENFORCED, PRIMARY KEY (t)) TYPE Memory
-- fail=primary-key
CREATE TABLE q (t ARRAY<INT> PRIMARY KEY NOT ENFORCED) TYPE Memory
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED, t TIMESTAMP, WATERMARK FOR t AS t) TYPE Memory
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED, d INT) TYPE Memory OPTIONS ('diff.column' = 'd')
-- fail=primary-key
CREATE TABLE q (i INT, op STRING PRIMARY KEY NOT ENFORCED) TYPE Memory OPTIONS ('op.column' = 'op')
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED) TYPE File OPTIONS ('path' = '/', 'refresh' = '5 s')
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED) TYPE Jdbc OPTIONS ('url' = 'jdbc:x', 'dbtable' = 't')
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED) TYPE Generator
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED, s INT) TYPE Memory OPTIONS ('sequence.by' = 'i')
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED, s BOOLEAN) TYPE Memory OPTIONS ('sequence.by' = 's')
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED, s INT) TYPE Memory OPTIONS ('sequence.by' = 'x')
-- fail=primary-key
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED, s INT) TYPE Memory OPTIONS ('tombstones' = '1 day')
-- fail=bad-option
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED, s INT) TYPE Memory OPTIONS ('sequence.by' = 's', 'tombstones' = '0 s')
-- fail=primary-key
CREATE TABLE q (i INT, s INT) TYPE Memory OPTIONS ('sequence.by' = 's')
-- fail=primary-key
CREATE TABLE q (i INT) TYPE Kafka OPTIONS ('format' = 'upsert-json')
-- fail=unknown-sink
CREATE TABLE q (i INT PRIMARY KEY NOT ENFORCED) TYPE Memory; INSERT INTO q SELECT i FROM q
-- fail=bad-option
CREATE TABLE q (t INT) TYPE Memory OPTIONS ('idle_timeout' = '5')
-- fail=bad-option
CREATE TABLE q (t INT) TYPE Memory OPTIONS ('rows_per_second' = '0')
-- fail=bad-option
CREATE TABLE q (t INT) TYPE Memory OPTIONS ('rows_per_second' = 'many')
-- fail=bad-option
CREATE TABLE q (t INT) TYPE Generator OPTIONS ('rows_per_second' = '5')
-- fail=bad-option
CREATE TABLE q (t INT) TYPE Memory OPTIONS ('max_rows' = '0')
-- fail=bad-option
CREATE TABLE q (t INT) TYPE Memory OPTIONS ('max_bytes' = 'many')
-- fail=bad-setting
SET max_job_rows = 'few'
-- fail=bad-setting
SET at_limit = 'shed'
-- fail=bad-setting
SET max_job_bytes = '0'
-- fail=unknown-setting 1:5
SET watermark_rul = 'limit'
-- fail=bad-setting 1:5
SET watermark_rule = 'lim'
-- fail=bad-setting
SET allowed_lateness = '5 seconds'
-- fail=bad-setting
SET max_rows = 0
-- fail=wrong-type
SELECT 1 FROM (SELECT t FROM l UNION ALL SELECT k FROM l) u
-- fail=column-count
SELECT 1 FROM (SELECT t FROM l UNION ALL SELECT t, k FROM l) u
-- fail=unknown-table 1:13
SELECT l.t, r.t FROM l LEFT SEMI JOIN r ON l.t = r.t
-- fail=not-supported 1:35
SELECT l.t FROM l RIGHT SEMI JOIN r ON l.t = r.t
-- fail=not-supported 1:40
SELECT l.t FROM l WHERE EXISTS (SELECT 1 FROM r GROUP BY r.t)
-- fail=duplicate-name 1:47
SELECT l.t FROM l WHERE EXISTS (SELECT 1 FROM l WHERE l.t = 1)
-- fail=not-supported 1:51
SELECT l.t FROM l WHERE l.t > 0 OR EXISTS (SELECT 1 FROM r WHERE r.t = l.t)
-- fail=unknown-column 1:10
SELECT x.kk FROM (SELECT l.k FROM l JOIN r ON l.t = r.t) x
-- fail=unknown-table 1:8
SELECT l.k FROM (SELECT l.k FROM l JOIN r ON l.t = r.t) x
-- fail=ambiguous-column 1:8
SELECT k FROM (SELECT l.k FROM l JOIN r ON l.t = r.t) x JOIN l ON l.k = x.k
-- fail=duplicate-column
SELECT x.k FROM (SELECT * FROM l JOIN r ON l.t = r.t) x
-- fail=duplicate-column
SELECT x.k FROM (l JOIN r ON l.t = r.t) x
-- fail=ambiguous-column
SELECT l.k FROM l JOIN (SELECT l.k FROM l JOIN r ON l.t = r.t) ON l.k = k
-- fail=not-supported 1:96
SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE(SELECT l.t AS t FROM l JOIN r ON l.t = r.t), DESCRIPTOR(t), 5)) x
-- fail=not-supported 1:117
SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE(SELECT t FROM l UNION ALL SELECT l.t FROM l JOIN r ON l.t = r.t), DESCRIPTOR(t), 5)) x
-- fail=wrong-type
SELECT l.t FROM l JOIN r ON l.t = r.t UNION ALL SELECT k FROM l
-- fail=column-count
SELECT l.t FROM l JOIN r ON l.t = r.t UNION ALL SELECT l.t, r.t FROM l JOIN r ON l.t = r.t
-- fail=not-supported
SELECT t FROM l INTERSECT SELECT t FROM r
-- fail=nondeterministic 1:25
SELECT x.n FROM (SELECT rand() AS n FROM l JOIN r ON l.t = r.t) x
-- fail=duplicate-name 1:52
SELECT 1 FROM (l JOIN r ON l.t = r.t) JOIN (SELECT l.k FROM l JOIN r ON l.t = r.t) r ON l.k = r.k
-- fail=duplicate-name
SELECT 1 FROM (SELECT l.t FROM l JOIN r ON l.t = r.t) x JOIN l AS "x.l" ON x.t = "x.l".t
-- fail=duplicate-name
SELECT 1 FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.t = l.t) AND EXISTS (SELECT 1 FROM r WHERE r.t > l.t)
-- fail=not-supported
SELECT x.v FROM l LEFT JOIN (SELECT p.s, coalesce(q.s, '') AS v FROM p JOIN p q ON p.s = q.s) x ON x.s = l.k
-- fail=not-supported 1:17
SELECT l.t FROM d FOR SYSTEM_TIME AS OF now() JOIN l ON l.t = d.a
-- fail=not-supported 1:29
SELECT l.t FROM l FULL JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON l.t = d.a
-- fail=not-supported
SELECT l.t FROM l JOIN d FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01' ON l.t = d.a
-- fail=not-supported
SELECT l.t FROM l JOIN d FOR SYSTEM_TIME AS OF l.t ON l.t = d.a
-- fail=not-supported
SELECT l.t FROM l JOIN d FOR SYSTEM_TIME AS OF l.nosuch ON l.t = d.a
-- fail=not-supported
SELECT l.t FROM l JOIN d FOR SYSTEM_TIME AS OF localtimestamp ON l.t = d.a
-- fail=not-supported
SELECT l.t FROM l JOIN d FOR SYSTEM_TIME AS OF now() - INTERVAL '1' DAY ON l.t = d.a
-- fail=not-supported
SELECT l.t FROM l JOIN d FOR VERSION AS OF 3 ON l.t = d.a
-- fail=unknown-table
SELECT l.t FROM l JOIN nosuch FOR SYSTEM_TIME AS OF PROCTIME() ON TRUE
-- fail=unknown-sink 1:13
INSERT INTO d SELECT l.t FROM l
-- fail=not-a-stream 1:16
CREATE TABLE x (t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'jdbc', 'url' = 'jdbc:x')
-- fail=bad-option 1:16
CREATE TABLE x (t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'file', 'path' = 'x', 'refresh' = '1 minute')
-- fail=bad-option 1:16
CREATE TABLE x (t TIMESTAMP) WITH ('connector' = 'kafka', 'topic' = 'x', 'refresh' = '1 minute')
-- fail=unknown-table
CREATE TABLE x (t BIGINT) WITH ('connector' = 'delta', 'path' = 'x'); SELECT t FROM x
-- fail=unknown-table
CREATE TABLE x (t BIGINT) WITH ('connector' = 'iceberg', 'path' = 'x'); SELECT t FROM x
-- fail=unknown-table
CREATE TABLE x (t BIGINT) WITH ('connector' = 'postgres', 'url' = 'postgresql://h/d', 'table' = 'x'); SELECT t FROM x
-- fail=unknown-table
CREATE TABLE x (t BIGINT) WITH ('connector' = 'console'); SELECT t FROM x
-- fail=unknown-table
CREATE TABLE x WITH ('connector' = 'delta', 'path' = 'x'); SELECT * FROM x
-- fail=unknown-table
CREATE TABLE x (t BIGINT) WITH ('connector' = 'delta', 'path' = 'x'); SELECT l.t FROM l JOIN x FOR SYSTEM_TIME AS OF now() ON l.t = x.t
-- fail=not-a-table
CREATE TABLE x (a BIGINT) WITH ('connector' = 'kafka', 'topic' = 'x'); SELECT l.t FROM l JOIN x FOR SYSTEM_TIME AS OF PROCTIME() ON x.a = l.t
-- fail=not-supported
WITH x AS (SELECT * FROM d UNION ALL SELECT * FROM d) SELECT l.t FROM l JOIN x FOR SYSTEM_TIME AS OF PROCTIME() ON x.a = l.t
-- fail=unknown-table 1:22
SELECT /*+ BROADCAST(x) */ l.t FROM l JOIN r ON l.t = r.t
-- fail=unknown-table 1:22
SELECT /*+ BROADCAST(l.k) */ l.t FROM l JOIN r ON l.t = r.t
-- fail=bad-hint 1:22
SELECT /*+ BROADCAST(l) */ l.t FROM l
-- fail=bad-hint 1:34
INSERT INTO f SELECT /*+ MAPJOIN(p) */ count(*) AS n FROM TABLE(TUMBLE(TABLE l AS p, DESCRIPTOR(t), 10)) GROUP BY window_start, window_end
-- fail=bad-hint 1:25
SELECT /*+ BROADCAST(l, r) */ l.t FROM l JOIN r ON l.t = r.t
-- fail=bad-hint 1:40
SELECT /*+ BROADCAST(l) */ /*+ MAPJOIN("r") */ l.t FROM l JOIN r ON l.t = r.t
-- fail=bad-hint 1:22
SELECT /*+ BROADCAST(r) */ l.t FROM l ASOF JOIN r MATCH_CONDITION (l.t >= r.t)
-- fail=bad-hint 1:22
SELECT /*+ BROADCAST(x) */ l.t FROM l JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS x ON x.a = l.v
-- fail=bad-hint 1:22
SELECT /*+ BROADCAST(l) */ l.t FROM l JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS x ON x.a = l.v
-- fail=bad-hint 1:22
SELECT /*+ BROADCAST(x) */ l.t FROM l JOIN (SELECT a.t FROM l a JOIN r b ON a.t = b.t) x ON l.t = x.t
-- fail=bad-hint 1:22
SELECT /*+ BROADCAST(b) */ l.t FROM l JOIN (SELECT a.t FROM l a JOIN r b ON a.t = b.t) x ON l.t = x.t
-- fail=bad-hint 1:22
SELECT /*+ BROADCAST(r) */ l.t FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.t = l.t)
-- fail=unknown-table 1:54
SELECT l.t FROM l WHERE EXISTS (SELECT /*+ BROADCAST(l) */ 1 FROM r WHERE r.t = l.t)
-- fail=bad-hint 1:12
SELECT /*+ BROADCAST */ l.t FROM l JOIN r ON l.t = r.t
-- fail=bad-hint 1:11
SELECT /*+ */ l.t FROM l JOIN r ON l.t = r.t
-- fail=not-supported 1:12
SELECT /*+ REPARTITION(3) */ l.t FROM l JOIN r ON l.t = r.t
-- fail=not-supported 1:32
SELECT /*+ BROADCASTJOIN(`r`), MERGE(l, (r)) */ l.t FROM l JOIN r ON l.t = r.t
-- fail=syntax 1:24
SELECT /*+ BROADCAST(r l) */ l.t FROM l JOIN r ON l.t = r.t
-- fail=reserved-name 1:10
SELECT l.__ws_x FROM l
-- fail=reserved-name 1:15
SELECT l.t AS `__WS_t` FROM l
-- fail=reserved-name 1:17
CREATE TABLE z (__Ws_k STRING) WITH ('connector' = 'memory')
-- fail=reserved-name 1:17
SELECT 1 FROM l __ws_l JOIN r ON r.t = __ws_l.t
-- fail=unknown-setting
SET lenient = true
-- fail=not-supported 1:8
SELECT window(t, '1 minute'), count(*) FROM l GROUP BY window(t, '1 minute')
-- fail=not-supported 1:8
SELECT TUMBLE_START(t, 5), count(*) FROM l GROUP BY TUMBLE(t, 5)
-- fail=not-supported 1:16
CREATE TABLE x AS SELECT * FROM l
-- fail=not-supported 1:8
CREATE MATERIALIZED VIEW x AS SELECT * FROM l
-- fail=not-supported 1:25
SELECT l.t FROM l WHERE v NOT IN (SELECT v FROM r)
-- fail=not-supported 1:25
SELECT l.t FROM l WHERE v IN (SELECT * FROM r)
-- fail=unknown-function 1:8
SELECT TO_MONEY(l.v) FROM l;

-- fail=unknown-function 1:25
SELECT l.t FROM l WHERE uper(l.k) = 'A';

-- fail=wrong-arguments
SELECT substring(l.k) AS s FROM l;

-- fail=wrong-arguments 1:8
SELECT array_contains(l.k, 1) AS s FROM l;

-- fail=wrong-types
SELECT p.s FROM p WHERE p.ts >= 2024-03-01;

-- fail=wrong-types
SELECT p.s FROM p WHERE p.ts BETWEEN 2024-03-01 AND TIMESTAMP '2024-04-01 00:00:00';

-- fail=wrong-types
SELECT p.ts * 1 AS x FROM p;

-- fail=wrong-types
SELECT p.s FROM p WHERE p.ts > 5;

-- fail=syntax 1:8
SELECT DATE '2024-13-01' AS x FROM l
-- fail=syntax 1:8
SELECT TIMESTAMP '2024-01-01 10:00:00 Foo/Bar' AS x FROM l
-- fail=syntax 1:8
SELECT TIMESTAMP '10:00:00' AS x FROM l
-- fail=syntax 1:29
SELECT l.t FROM l WHERE v = :p
-- fail=syntax 1:29
SELECT l.t FROM l WHERE v = ?
-- fail=syntax 1:30
SELECT l.t FROM l WHERE v IN ()
-- fail=syntax 1:36
SELECT l.t FROM l WHERE k LIKE ANY ()
-- fail=syntax 1:43
SELECT l.t FROM l WHERE k LIKE 'a' ESCAPE 'ab'
-- fail=syntax 1:8
SELECT X'0Z' AS x FROM l
-- fail=wrong-types 1:25
SELECT l.t FROM l WHERE v
-- fail=wrong-types 1:25
SELECT l.t FROM l WHERE k
-- fail=wrong-types 1:25
SELECT l.t FROM l WHERE v > 1 AND (1)
-- fail=wrong-types 1:29
SELECT l.t FROM l WHERE NOT v
-- fail=wrong-types 1:29
SELECT l.t FROM l JOIN r ON r.t
-- fail=wrong-types 1:18
SELECT CASE WHEN v THEN 1 END AS x FROM l
-- fail=wrong-types
SELECT CASE WHEN v > 1 THEN ts ELSE 1 END AS x FROM (SELECT 1 AS v, ts FROM p) q
-- fail=wrong-types
SELECT coalesce(p.ts, 1) AS x FROM p
-- fail=wrong-types
SELECT p.s FROM p WHERE p.ts IN (1, 2)
-- fail=wrong-types
SELECT CAST(v AS DATE) AS x FROM l
-- fail=wrong-types
SELECT CAST(array(v) AS ARRAY<DATE>) AS x FROM l
-- fail=wrong-types
SELECT k[0] AS x FROM l
-- fail=wrong-types
SELECT -ts AS x FROM p
-- fail=wrong-types
SELECT p.s FROM p WHERE p.ts LIKE array(1)
-- fail=bad-pattern
SELECT l.t FROM l WHERE k RLIKE '('
-- fail=bad-pattern
SELECT regexp_extract(k, 'a') AS x FROM l
-- fail=bad-pattern
SELECT l.t FROM l WHERE k LIKE 'a!b' ESCAPE '!'
-- fail=bad-pattern
SELECT extract(foo FROM p.ts) AS x FROM p
-- fail=bad-pattern
SELECT date_format(p.ts, 'YYYY-MM-dd') AS x FROM p
-- fail=bad-pattern
SELECT to_timestamp(p.s, 'EEE dd') AS x FROM p
-- fail=not-supported 1:33
SELECT t, e FROM l LATERAL VIEW explode(a) x AS e
-- fail=unknown-column
CREATE TABLE n (t BIGINT, a STRUCT<price: INT, b: ARRAY<STRUCT<c: INT>>>) TYPE Memory; SELECT n.a.prise FROM n
-- fail=unknown-column
CREATE TABLE n (t BIGINT, a STRUCT<price: INT, b: ARRAY<STRUCT<c: INT>>>) TYPE Memory; SELECT n.a.b.d FROM n
-- fail=wrong-arguments
SELECT overlay(k, '1', true) AS x FROM l
-- fail=wrong-arguments
SELECT substring(k, DATE '2024-01-01', 1) AS x FROM l
-- fail=wrong-arguments
SELECT regexp_replace(1, array(1), 2) AS x FROM l
-- fail=wrong-arguments
SELECT make_timestamp(2024, 1, 1, 1, 1, p.ts) AS x FROM p
-- fail=unknown-column
CREATE TABLE n (t BIGINT, a ARRAY<STRUCT<c: INT>>) TYPE Memory; SELECT n.a[0].d FROM n
-- fail=wrong-types
SELECT v IS NOT DISTINCT FROM array(1) AS x FROM l
-- fail=wrong-types
SELECT CAST(v AS DECIMAL(5,6)) AS x FROM l
-- fail=bad-pattern
SELECT l.t FROM l WHERE k RLIKE '[z-a]'
-- fail=bad-pattern
SELECT l.t FROM l WHERE k RLIKE '\\p{Foo}'
-- fail=bad-pattern
SELECT regexp_replace(k, '(?<n>a)(?<n>b)', '') AS x FROM l
-- fail=wrong-arguments
SELECT date_add(v, 1) AS x FROM l
-- fail=wrong-arguments
SELECT year(v) AS x FROM l
-- fail=bad-pattern
SELECT timestampadd(FORTNIGHT, 1, p.ts) AS x FROM p
-- fail=bad-pattern
SELECT datediff(FORTNIGHT, p.ts, p.ts) AS x FROM p
-- fail=wrong-types
SELECT timestampadd(DAY, 1, v) AS x FROM l
-- fail=wrong-arguments
SELECT transform(array(v), e -> year(e)) AS x FROM l
-- fail=wrong-types
SELECT filter(array(v), e -> e + 1) AS x FROM l
-- fail=wrong-arguments
SELECT transform(array(v), (a, b, c) -> a) AS x FROM l
-- fail=wrong-arguments
SELECT transform(v, e -> e) AS x FROM l
-- fail=wrong-types
CREATE TABLE n (t BIGINT, a ARRAY<INT>, b ARRAY<DECIMAL(10,2)>) TYPE Memory; SELECT n.t FROM n WHERE n.a = n.b
-- fail=wrong-arguments
CREATE TABLE n (t BIGINT, a ARRAY<INT>, b ARRAY<DECIMAL(10,2)>) TYPE Memory; SELECT array_union(n.a, n.b) AS x FROM n
-- fail=wrong-arguments
CREATE TABLE n (t BIGINT, m MAP<STRING, INT>) TYPE Memory; SELECT element_at(n.m, 1) AS x FROM n
-- fail=wrong-arguments
SELECT greatest(v, k) AS x FROM l
-- fail=wrong-arguments
SELECT round(v, v) AS x FROM l
-- fail=syntax
SELECT CAST(v AS VARCHAR) AS x FROM l
-- fail=syntax
SELECT v::CHAR AS x FROM l
-- fail=bad-duration
SELECT INTERVAL '1-12' YEAR TO MONTH AS x FROM l
-- fail=ambiguous-column
SELECT v + 1 AS a, v AS a, a + 1 AS b FROM l
-- fail=unknown-column
SELECT rand() AS a, a + 1 AS b FROM l
-- fail=unknown-column
SELECT v FROM l WHERE k = "text"
-- fail=unknown-table
SELECT l.v.* FROM l
-- fail=unknown-type
CREATE TABLE n (t BIGINT, a VARIANT) TYPE Memory; SELECT n.t FROM n
-- fail=unknown-type
CREATE TABLE n (t BIGINT, a TIME) TYPE Memory; SELECT n.t FROM n
-- fail=not-supported
SELECT IDENTIFIER('k') AS x FROM l
-- fail=duplicate-option 1:75
CREATE TABLE q (a INT) WITH ('connector' = 'file', 'path' = 'a', 'x' = 1, 'path' = 'a')
-- fail=duplicate-option 1:54
CREATE TABLE q (a INT) TYPE File OPTIONS (sep = ',', SEP = ';')
-- fail=duplicate-option 1:63
CREATE TABLE q (a INT) TYPE File OPTIONS ('path' = 'a') WITH ('Path' = 'b')
-- fail=duplicate-option 1:73
CREATE TABLE q (a INT) TYPE Kafka OPTIONS ('idle_timeout' = '1 second', 'IDLE-TIMEOUT' = '2 seconds')
-- fail=duplicate-option 1:57
CREATE SINK q WITH ('connector' = 'file', 'path' = 'a', 'PATH' = 'b')
-- fail=duplicate-option
CREATE TABLE q (a INT) TYPE Kafka OPTIONS ('connector' = 'file')
-- fail=not-supported 1:8
SELECT localtimestamp FROM l
-- fail=unknown-column 1:8
SELECT `localtimestamp` FROM l
-- fail=unknown-column 1:8
SELECT array[1] AS x FROM l
-- fail=syntax 1:13
SELECT array[1, 2] AS x FROM l
-- fail=syntax 1:8
SELECT [1, 2] AS x FROM l
-- fail=syntax 1:16
SELECT array(1)[0:1] AS x FROM l
-- fail=syntax 1:8
SELECT {'a': 1} AS x FROM l
-- fail=ungrouped-column 1:8
SELECT k, count(*) AS n FROM l
