CREATE TABLE a (k INT, v STRING, t BIGINT, WATERMARK FOR t AS t - 4)
  WITH ('connector' = 'file', 'path' = 'a');
CREATE TABLE b (k INT, v STRING, t BIGINT, WATERMARK FOR t AS t - 4)
  WITH ('connector' = 'file', 'path' = 'b');
CREATE TABLE c (k INT, v STRING, t BIGINT, WATERMARK FOR t AS t - 4)
  WITH ('connector' = 'file', 'path' = 'c');
CREATE TABLE x (k INT, g INT, op STRING, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'file', 'path' = 'x', 'op.column' = 'op', 'op.insert' = 'I', 'op.delete' = 'D');
CREATE TABLE y (k INT, g INT, op STRING, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'file', 'path' = 'y', 'op.column' = 'op', 'op.insert' = 'I', 'op.delete' = 'D');
CREATE TABLE pairs WITH ('connector' = 'memory');
CREATE TABLE pads WITH ('connector' = 'memory');
CREATE TABLE semi WITH ('connector' = 'memory');
CREATE TABLE latest WITH ('connector' = 'memory');
CREATE TABLE windows WITH ('connector' = 'memory');
CREATE TABLE sessions WITH ('connector' = 'memory');
CREATE TABLE sums WITH ('connector' = 'memory');
CREATE TABLE top WITH ('connector' = 'memory');
CREATE TABLE delta WITH ('connector' = 'memory');
CREATE TABLE outer_changes WITH ('connector' = 'memory');
INSERT INTO pairs SELECT a.k, a.v, b.v AS w, c.t FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 20
  JOIN c ON c.k = b.k AND c.t BETWEEN b.t - 5 AND b.t + 9;
INSERT INTO pads SELECT a.k, a.t, b.t AS u
  FROM a FULL JOIN b ON a.k = b.k AND b.t BETWEEN a.t - 3 AND a.t + 12;
INSERT INTO semi SELECT a.k, a.t
  FROM a WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.k = a.k AND c.t BETWEEN a.t AND a.t + 8);
INSERT INTO latest SELECT a.k, a.t, b.v
  FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t;
INSERT INTO windows SELECT a.k, window_end, count(*) AS n, sum(a.t) AS s
  FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), 10))
  a GROUP BY a.k, window_start, window_end;
INSERT INTO sums SELECT x.g, count(*) AS n, min(y.k) AS m
  FROM x JOIN y ON x.k = y.g
  GROUP BY x.g EMIT CHANGES;
INSERT INTO delta SELECT x.k, y.k AS l, y.g FROM x JOIN y ON x.g = y.g EMIT CHANGES;
INSERT INTO outer_changes SELECT x.k, y.k AS l
  FROM x LEFT JOIN y ON x.g = y.k EMIT CHANGES;
