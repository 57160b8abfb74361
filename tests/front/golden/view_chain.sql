-- title: filters beneath and above the ordering, renamed and computed times, views over views
CREATE TABLE s (id BIGINT, ts TIMESTAMP(3), kind STRING, v INT) WITH ('connector' = 'memory');
CREATE VIEW a AS SELECT id, ts AS t, ts + INTERVAL 1 DAY 2 HOURS AS later, v * 2 AS w FROM s WHERE kind = 'x' OR v > 1;
CREATE VIEW b AS SELECT w + 1 AS w1, t AS time, later FROM TABLE(IMPOSE_ORDER(TABLE a, DESCRIPTOR(T), INTERVAL '5' SECONDS)) WHERE w > 3 OR w < 0;
SELECT x.*, y.time FROM b x JOIN b y ON x.time = y.time WHERE NOT x.w1 = 5;
