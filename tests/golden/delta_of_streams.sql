SET plan = delta;
CREATE TABLE clicks (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECOND)
    WITH ('connector' = 'file', 'path' = 'clicks', 'format' = 'json');
CREATE TABLE views (k BIGINT, page BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECOND)
    WITH ('connector' = 'file', 'path' = 'views', 'format' = 'json');
CREATE TABLE loads (page BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '5' SECOND)
    WITH ('connector' = 'file', 'path' = 'loads', 'format' = 'json');
CREATE TABLE out WITH ('connector' = 'file', 'path' = 'out', 'format' = 'json');
INSERT INTO out SELECT c.k, l.page
    FROM clicks c
    JOIN views v ON c.k = v.k AND c.t BETWEEN v.t AND v.t + INTERVAL '10' SECOND
    JOIN loads l ON l.page = v.page AND l.t BETWEEN v.t AND v.t + INTERVAL '1' HOUR;
