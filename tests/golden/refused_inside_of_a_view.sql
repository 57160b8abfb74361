-- fail=unbounded-state
CREATE TABLE o (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) TYPE Memory;
CREATE TABLE d (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5) TYPE Memory;
CREATE VIEW od AS SELECT o.id, d.t FROM o JOIN d ON d.id = o.id AND d.t = o.t;
SELECT r.id FROM o r JOIN od ON od.id = r.id;
