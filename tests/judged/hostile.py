"""Objects of a database that act without being named, and statements that reach each of them.

A function that acts tells by a notice. `ANYWHERE` makes any statement act, so it needs a database of its own.
"""

from typing import Final

#: Beside the objects of `yards.POSTGRES_FULL`, by a superuser.
HOSTILE: Final = """
    CREATE EXTENSION tablefunc; CREATE EXTENSION unaccent; CREATE EXTENSION citext; CREATE EXTENSION hstore;
    CREATE EXTENSION tsm_system_rows; CREATE EXTENSION pg_trgm;
    CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TABLE moody (m mood); INSERT INTO moody VALUES ('ok'), ('sad');
    CREATE FUNCTION mood_json(mood) RETURNS json LANGUAGE sql AS 'SELECT effect(1)::text::json';
    CREATE CAST (mood AS json) WITH FUNCTION mood_json(mood);
    CREATE FUNCTION mood_text(mood) RETURNS text LANGUAGE sql AS 'SELECT effect(1)::text';
    CREATE CAST (mood AS text) WITH FUNCTION mood_text(mood) AS ASSIGNMENT;
    CREATE TYPE tint AS ENUM ('red', 'blue'); CREATE TABLE tinted (c tint); INSERT INTO tinted VALUES ('red'), ('blue');
    CREATE FUNCTION tint_is(tint, text) RETURNS boolean LANGUAGE sql AS 'SELECT effect(1) = 1';
    CREATE FUNCTION tint_less(tint, tint) RETURNS boolean LANGUAGE sql AS 'SELECT effect(1) = 1';
    CREATE OPERATOR !~ (leftarg = tint, rightarg = text, function = tint_is);
    CREATE OPERATOR ~~ (leftarg = tint, rightarg = text, function = tint_is);
    CREATE OPERATOR >= (leftarg = tint, rightarg = tint, function = tint_less);
    CREATE OPERATOR <= (leftarg = tint, rightarg = tint, function = tint_less);
    CREATE TYPE rung AS ENUM ('one', 'two', 'three');
    CREATE FUNCTION rung_cmp(rung, rung) RETURNS int IMMUTABLE LANGUAGE plpgsql
        AS 'BEGIN RAISE NOTICE ''effect''; RETURN enum_cmp($1, $2); END';
    CREATE OPERATOR CLASS rung_ops FOR TYPE rung USING btree AS OPERATOR 1 < (anyenum, anyenum),
        OPERATOR 2 <= (anyenum, anyenum), OPERATOR 3 = (anyenum, anyenum), OPERATOR 4 >= (anyenum, anyenum),
        OPERATOR 5 > (anyenum, anyenum), FUNCTION 1 rung_cmp(rung, rung);
    CREATE TABLE ladder (r rung) PARTITION BY RANGE (r rung_ops);
    CREATE TABLE ladder_low PARTITION OF ladder FOR VALUES FROM ('one') TO ('two');
    CREATE TABLE ladder_high PARTITION OF ladder FOR VALUES FROM ('two') TO ('three');
    CREATE TYPE rung_range AS RANGE (subtype = rung, subtype_opclass = rung_ops);
    CREATE FUNCTION inlined(int) RETURNS boolean IMMUTABLE LANGUAGE sql
        AS 'SELECT public.effect_at_once(1) > 0 AND $1 > 0';
    CREATE TABLE inline_index (a int); CREATE INDEX ON inline_index (a) WHERE inlined(a);
    CREATE TABLE measured (a int, b int); CREATE STATISTICS measured_by ON (a + effect_at_once(1)), b FROM measured;
    CREATE TABLE ruled (a int); CREATE RULE instead AS ON INSERT TO ruled
        DO ALSO INSERT INTO written (b) VALUES (effect_at_once(1));
    CREATE FUNCTION "do it"(int) RETURNS int LANGUAGE sql AS 'SELECT effect(1)';
    CREATE AGGREGATE effect_sum(int) (sfunc = effect_on, stype = int, initcond = '0');
    CREATE TABLE folded (c citext); INSERT INTO folded VALUES ('x'); CREATE TABLE stored (h hstore);
    CREATE VIEW over_folded AS SELECT count(*) FROM folded WHERE c = 'x';
    CREATE TABLE searched (b text); CREATE INDEX ON searched USING gin (b gin_trgm_ops);
    CREATE FUNCTION told() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''effect''; END';
    CREATE EVENT TRIGGER telling ON ddl_command_start EXECUTE FUNCTION told();
    GRANT ALL ON ALL TABLES IN SCHEMA public TO writer;"""

#: Each acts there, and no word of most names what acts.
GUILTY: Final = (
    "SELECT (q).crosstab2 FROM (SELECT 'SELECT 1::text, 2::text, effect(1)::text'::text AS q) AS x",
    "SELECT row_to_json(moody) FROM moody",
    "SELECT to_json(m) FROM moody",
    "SELECT to_jsonb(x) FROM moody x",
    "SELECT json_agg(m) FROM moody",
    "SELECT json_build_array(m), jsonb_build_object('m', m) FROM moody",
    "SELECT jsonb_object_agg('m', m) FROM moody",
    "SELECT m || 'x' FROM moody",
    "SELECT quote_literal(m) FROM moody",
    "SELECT quote_nullable(m) FROM moody",
    "SELECT c NOT SIMILAR TO 'x' FROM tinted",
    "SELECT c LIKE 'x' FROM tinted",
    "SELECT c BETWEEN SYMMETRIC 'red' AND 'blue' FROM tinted",
    "SELECT * FROM ladder WHERE r = 'one'",
    "SELECT '[one,two]'::rung_range",
    "SELECT * FROM inline_index WHERE a > 5",
    "SELECT * FROM measured WHERE a + 1 = 5",
    "EXPLAIN INSERT INTO ruled VALUES (1)",
    'SELECT "do it"(1)',
    'SELECT (a)."do it" FROM t',
    "SELECT effect_sum(a) FROM t",
    "SELECT domain_in('5', (SELECT oid FROM pg_type WHERE typname = 'chec' || 'ked'), -1)",
    "SELECT array_in('{5}', (SELECT oid FROM pg_type WHERE typname = 'chec' || 'ked'), -1)",
    "SELECT p FROM pairs ORDER BY p USING <<<<",
    "SELECT DISTINCT p FROM pairs",
    "SELECT p FROM pairs UNION SELECT p FROM pairs",
    "SELECT count(*) FROM pairs GROUP BY p",
)
#: What an extension made, or what may show it: no function here tells, and the database is asked nevertheless.
OF_EXTENSIONS: Final = (
    "SELECT c FROM folded",
    "SELECT 1 FROM folded WHERE c = 'x'",
    "SELECT * FROM over_folded",
    "SELECT h FROM stored",
    "SELECT 'a=>1'::hstore",
    "SELECT * FROM t TABLESAMPLE system_rows(1)",
    "SELECT to_tsvector('english', 'x')",
    "SELECT 'x' @@ 'y'",
    "SELECT * FROM searched WHERE b LIKE '%abc%'",
    "SELECT a % 2 FROM t",
    "SELECT most_common_vals FROM pg_stats",
    "SELECT attname, attmissingval FROM pg_attribute",
    "SELECT column_default FROM information_schema.columns",
    "SELECT format_type(atttypid, atttypmod) FROM pg_class, LATERAL (SELECT 1 AS atttypid, 2 AS atttypmod) AS x",
)

#: What no type of a user's stands between: each alone makes every statement ask.
ANYWHERE: Final = {
    "a cast": """CREATE FUNCTION point_json(point) RETURNS json LANGUAGE sql AS 'SELECT to_json(1)';
        CREATE CAST (point AS json) WITH FUNCTION point_json(point)""",
    "a cast by a function of the server's own": "CREATE CAST (text AS bytea) WITH FUNCTION pg_read_binary_file(text)",
    "an implied operator": """CREATE FUNCTION same(text, int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
        CREATE OPERATOR = (leftarg = text, rightarg = int, function = same)""",
    "an order": """CREATE FUNCTION backwards(int, int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $2 - $1';
        CREATE OPERATOR CLASS backwards_ops FOR TYPE int USING btree AS OPERATOR 1 <, FUNCTION 1 backwards(int, int)""",
    "a support of an index of the server's own": """CREATE FUNCTION sort_boxes(internal) RETURNS void LANGUAGE internal
        AS 'gist_point_sortsupport';
        ALTER OPERATOR FAMILY box_ops USING gist ADD FUNCTION 11 (box, box) sort_boxes(internal)""",
    "a default order": """CREATE FUNCTION point_cmp(point, point) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 0';
        CREATE FUNCTION point_less(point, point) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true';
        CREATE OPERATOR <<<<< (leftarg = point, rightarg = point, function = point_less);
        CREATE OPERATOR CLASS point_ops DEFAULT FOR TYPE point USING btree AS
            OPERATOR 1 <<<<<, FUNCTION 1 point_cmp(point, point)""",
}
