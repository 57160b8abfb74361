-- A job whose checkpoint is kept beside this file, with all that a version may have stored.
CREATE TABLE a (k INT, t TIMESTAMP, v INT, x DOUBLE, s STRING, WATERMARK FOR t AS t - INTERVAL '4' SECONDS)
  WITH ('connector' = 'file', 'path' = 'in/a', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE b (k INT, t TIMESTAMP, v INT, x DOUBLE, s STRING, WATERMARK FOR t AS t - INTERVAL '4' SECONDS)
  WITH ('connector' = 'file', 'path' = 'in/b', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE c (k INT, g INT, op STRING, PRIMARY KEY (k) NOT ENFORCED)
  WITH ('connector' = 'file', 'path' = 'in/c', 'format' = 'json', 'maxFilesPerTrigger' = '1',
        'op.column' = 'op', 'op.insert' = 'I', 'op.delete' = 'D');
CREATE TABLE pairs WITH ('connector' = 'file', 'path' = 'out/pairs');
CREATE TABLE bands WITH ('connector' = 'file', 'path' = 'out/bands', 'format' = 'json');
CREATE TABLE days WITH ('connector' = 'file', 'path' = 'out/days', 'format' = 'csv');
CREATE TABLE windows WITH ('connector' = 'delta', 'path' = 'out/windows');
CREATE TABLE sums WITH ('connector' = 'file', 'path' = 'out/sums', 'format' = 'json');
CREATE TABLE late WITH ('connector' = 'file', 'path' = 'out/late', 'format' = 'json');
SET late_output = late;
CREATE INDEX by_g ON c (g);

INSERT INTO pairs SELECT a.k, a.v, b.v AS w
  FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t - INTERVAL '3' SECONDS AND a.t + INTERVAL '9' SECONDS;
INSERT INTO bands SELECT a.v, b.v AS w
  FROM a JOIN b ON b.t BETWEEN a.t AND a.t + INTERVAL '9' SECONDS
    AND abs(a.v - b.v) <= 20 AND a.x <= b.x + 0.5D AND a.s <= b.s;
INSERT INTO days SELECT a.v, b.v AS w
  FROM a JOIN b ON a.k = b.k AND date_trunc('MINUTE', a.t) = date_trunc('MINUTE', b.t)
    AND datediff(b.t, a.t) <= 1;
INSERT INTO windows SELECT window_end, count(*) AS n, sum(a.v) AS v
  FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), INTERVAL '10' SECONDS)) a GROUP BY window_start, window_end;
INSERT INTO sums SELECT c.g, count(*) AS n, min(d.k) AS m
  FROM c JOIN c d ON c.k = d.g GROUP BY c.g EMIT CHANGES;
