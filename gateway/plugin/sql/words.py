"""The words of SQL that decide whether a statement is harmless: allow-lists, except where noted."""

import re

from gateway.plugin.word_lists import split_words

#: Begin a statement or a part of one that changes something. Anywhere as bare words they ask.
WRITING = split_words("""
    insert update delete merge drop create alter truncate exec execute grant revoke deny shutdown dbcc reconfigure
    waitfor attach detach outfile dumpfile openrowset openquery opendatasource
""")
#: What a statement that is only explained may be: it is planned, not run.
EXPLAINED = split_words("insert update delete replace merge")
#: Statements of one word: SQL Server starts a new statement without a semicolon.
ONE_WORD = split_words("checkpoint revert commit rollback break continue return receive setuser begin")
#: Statements with words after them, for the same reason; elsewhere they are names (SELECT min(t) start).
SEVERAL_WORDS = split_words("""
    kill set use backup restore declare print raiserror throw bulk dump load open close save call copy lock do go if
    while goto send move enable disable readtext writetext updatetext add begin commit rollback
""")

#: After these an operand, a name or a parenthesis comes: they end what stood before them. Followed by a parenthesis
#: they are not functions.
CONNECTING = split_words("""
    select distinct distinctrow all from where group by having order limit offset fetch first next on using join
    inner left right full outer cross natural lateral apply union intersect except minus and or not xor in is like
    ilike rlike regexp match similar to between case when then else as over partition range rows row groups window
    qualify filter within exists any some values with without recursive materialized collate escape interval div mod
    binary for of top percent straight_join sql_no_cache sql_cache sql_calc_found_rows sql_small_result
    sql_big_result sql_buffer_result high_priority index key tablesample bernoulli option pivot unpivot prior sets
    rollup cube grouping array at zone separator against columns only skip placing nulls path table asof semi anti
    unique overlaps sounds member respect exclude ties connect_by_root global unbounded maxrecursion maxdop
""")
#: Words that neither PostgreSQL nor SQLite takes for the name of a column. Many words above are one to them: `key`.
RESERVED = split_words("""
    select distinct all from where group having order limit on using join union intersect except and or not in is case
    when then else as to collate unique table null
""")
#: Besides these, in SHOW.
SHOWING = split_words("""
    engine status character transaction isolation binary master slave replica query schema database session create
    user fields indexes keys tables databases schemas variables full extended storage open profile processlist
    grants procedure function trigger event view binlog relaylog count charset collation
""")
#: What SHOW shows when more than one name follows.
SHOWN = SHOWING | split_words("""
    all global terse local columns index table time warnings errors engines privileges triggers events plugins profiles
    replicas functions procedures views catalogs roles users warehouses stages partitions tblproperties stats locks
    objects materialized sequences constraints parameters current search_path types enums jobs sessions ranges zones
    regions extensions dictionaries clusters settings
""")
#: Words between EXPLAIN or DESCRIBE and what is explained. ANALYZE is not among them: it runs the statement.
EXPLAINING = split_words("""
    verbose extended partitions query plan for logical physical formatted codegen cost ast syntax pipeline estimate
    opt types vec distsql table view database schema function procedure external sequence columns
""")
#: Pragmas of SQLite that only read, whatever their argument.
READING_PRAGMAS = split_words("""
    table_info table_xinfo table_list index_list index_info index_xinfo foreign_key_list foreign_key_check
    database_list collation_list function_list module_list pragma_list compile_options integrity_check quick_check
""")
#: Pragmas that read as long as they have no argument.
BARE_PRAGMAS = split_words("""
    user_version application_id schema_version data_version journal_mode foreign_keys encoding page_count page_size
    max_page_count freelist_count cache_size synchronous auto_vacuum busy_timeout locking_mode temp_store mmap_size
    recursive_triggers query_only secure_delete wal_autocheckpoint
""")

#: A query does not end in these.
UNFINISHED = split_words("""
    select from where by having join and or not in like between union intersect except as when then else
""")

#: Table hints of SQL Server that lock more than reading does.
LOCK_HINTS = split_words("updlock xlock tablock tablockx holdlock serializable paglock rowlock repeatableread")
#: Where databases keep password hashes and access rules.
SENSITIVE = split_words("""
    pg_shadow pg_authid pg_user_mapping pg_user_mappings pg_hba_file_rules pg_file_settings pg_largeobject
    mysql.user mysql.global_priv mysql.db sys.sql_logins sys.syslogins sys.user$ syslogins sysxlogins sql_logins
    dba_users user$
""")

#: Parameterised types, which look like calls.
TYPES = split_words("""
    decimal numeric number varchar varchar2 nvarchar nvarchar2 char nchar character varying varbinary binary bit
    float double real datetime2 datetimeoffset time timestamp timestamptz int integer bigint smallint vector
""")
#: PostgreSQL takes `x.f` for `f(x)` where x has no column f. Beginnings of its functions that act or reach out.
ACTING = re.compile(r"(?:pg_|lo_|dblink|txid_|binary_upgrade_|brin_|gin_clean_|setseed\Z|ts_stat\Z|load_)")
#: Fields of the records that functions return, and of addresses: `(jsonb_each(data)).key`.
FIELDS = split_words(
    "key value id name type status city street country lexeme word alias token element item ordinality"
)

#: Tables of extensions of SQLite that read files, or the pages of the database.
LISTING = split_words("fsdir zipfile lsdir csv sqlite_dbpage sqlite_dbdata sqlite_dbptr vsv readfile completion")

_TEXT = split_words("""
    ascii unicode chr char nchar concat concat_ws length len char_length character_length octet_length bit_length
    datalength lower upper lcase ucase initcap trim ltrim rtrim btrim lpad rpad left right insert substr substring
    substring_index substrb mid replace translate reverse repeat replicate space stuff overlay position locate instr
    charindex patindex strpos find_in_set field elt split_part string_to_array array_to_string string_agg
    string_to_table
    string_split format printf quote quote_ident quote_literal quote_nullable quotename soundex difference metaphone
    levenshtein similarity unaccent starts_with ends_with startswith endswith contains strcmp to_ascii to_hex hex
    unhex bin oct ord conv to_base64 from_base64 base64_encode base64_decode encode decode md5 sha sha1 sha2 sha224
    sha256 sha384 sha512 hashbytes crc32 checksum digest regexp_like regexp_replace regexp_substr regexp_instr
    regexp_count regexp_match regexp_matches regexp_split_to_array regexp_split_to_table regexp_extract
    regexp_contains regexp_full_match rlike like match normalize string_escape export_set make_set weight_string
    convert_from convert_to to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank
    ts_rank_cd ts_headline numnode querytree word_similarity strict_word_similarity show_trgm highlight snippet bm25
    offsets matchinfo freetext containstable freetexttable nlssort vsize uuid_to_bin bin_to_uuid is_uuid inet_aton
    inet_ntoa inet6_aton inet6_ntoa is_ipv4 is_ipv6 host hostmask netmask network masklen broadcast family abbrev
    set_masklen text
""")
_NUMBERS = split_words("""
    abs ceil ceiling floor round trunc truncate sign mod div power pow sqrt cbrt exp ln log log2 log10 pi sin cos
    tan asin acos atan atan2 cot sinh cosh tanh asinh acosh atanh degrees radians square greatest least random rand
    gcd lcm factorial width_bucket scale min_scale trim_scale bit_count bit_and bit_or bit_xor bitand nanvl
    remainder isnumeric is_numeric to_number val cast convert try_cast try_convert safe_cast try_parse parse
    safe_divide numrange int4range int8range tsrange tstzrange daterange lower_inf upper_inf isempty range_merge
""")
_TIMES = split_words("""
    now getdate getutcdate sysdate sysdatetime sysutcdatetime sysdatetimeoffset systimestamp curdate curtime
    current_date current_time current_timestamp localtime localtimestamp utc_date utc_time utc_timestamp date time
    datetime timestamp timestamptz julianday unixepoch strftime timediff date_add date_sub date_diff datediff
    datediff_big dateadd datepart datename date_part date_trunc datetrunc date_bin date_format time_format
    date_parse date_from_parts datefromparts datetimefromparts timefromparts datetime2fromparts adddate subdate
    addtime subtime timestampdiff timestampadd timestamp_trunc timestamp_diff timestamp_add timestamp_sub extract
    year quarter month week day hour minute second microsecond millisecond weekday weekofyear yearweek dayofweek
    dayofmonth dayofyear dayname monthname last_day eomonth next_day add_months months_between age make_date
    make_time make_timestamp make_timestamptz make_interval make_datetime makedate maketime isfinite justify_days
    justify_hours justify_interval to_char to_date to_timestamp to_timestamp_tz str_to_date from_unixtime
    unix_timestamp to_days from_days to_seconds sec_to_time time_to_sec period_add period_diff convert_tz get_format
    clock_timestamp statement_timestamp transaction_timestamp timeofday isdate switchoffset todatetimeoffset from_tz
    tz_offset numtodsinterval numtoyminterval to_dsinterval to_yminterval dbtimezone sessiontimezone hours days
    months years todate tounixtimestamp to_unixtime from_iso8601_timestamp format_date format_timestamp parse_date
    parse_timestamp epoch
""")
_AGGREGATES = split_words("""
    count count_big sum avg min max total median mode stddev stddev_pop stddev_samp std stdev stdevp variance
    var_pop var_samp var varp corr covar_pop covar_samp regr_slope regr_intercept regr_r2 regr_count regr_avgx
    regr_avgy group_concat listagg array_agg json_agg jsonb_agg json_object_agg jsonb_object_agg json_arrayagg
    json_objectagg json_group_array json_group_object xmlagg bool_and bool_or every any_value arbitrary
    approx_count_distinct approx_distinct approx_percentile percentile_cont percentile_disc percentile row_number
    rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value first last
    ratio_to_report grouping grouping_id count_if countif sumif max_by min_by argmax argmin uniq uniqexact quantile
    quantile_cont quantile_disc checksum_agg collect_list collect_set range_agg
""")
_CHOICES = split_words("""
    coalesce nullif ifnull isnull nvl nvl2 if iif choose case decode zeroifnull nullifzero likely unlikely
    likelihood interval exists values row array typeof pg_typeof sql_variant_property num_nulls num_nonnulls
""")
_STRUCTURES = split_words("""
    json jsonb json_extract json_extract_path json_extract_path_text jsonb_extract_path jsonb_extract_path_text
    json_value json_query json_exists json_unquote json_quote json_array json_object json_keys json_length
    json_depth json_type json_valid json_contains json_contains_path json_search json_set json_insert json_replace
    json_remove json_merge json_merge_patch json_merge_preserve json_array_append json_array_insert
    json_array_length jsonb_array_length json_array_elements jsonb_array_elements json_array_elements_text
    jsonb_array_elements_text json_each jsonb_each json_each_text jsonb_each_text json_tree json_object_keys
    jsonb_object_keys json_typeof jsonb_typeof json_build_object jsonb_build_object json_build_array
    jsonb_build_array json_strip_nulls jsonb_strip_nulls json_pretty jsonb_pretty jsonb_set jsonb_insert
    jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_path_exists jsonb_path_match json_to_record
    jsonb_to_record json_to_recordset jsonb_to_recordset json_populate_record jsonb_populate_record row_to_json
    to_json to_jsonb array_to_json json_table openjson isjson json_modify json_overlaps json_patch
    json_error_position json_storage_size parse_json try_parse_json object_construct array_construct flatten
    get_json_object unnest explode array_length array_upper array_lower array_ndims array_dims array_position
    array_positions array_append array_prepend array_cat array_remove array_replace array_contains array_distinct
    array_join array_size cardinality arraycontains list_contains generate_subscripts generate_series element_at
    hstore akeys avals xmlelement xmlforest xmlattributes xmlconcat st_x st_y st_distance st_distance_sphere
    st_astext st_asgeojson st_geomfromtext st_point st_makepoint st_setsrid st_within st_contains st_intersects
    st_dwithin st_area st_length st_srid st_transform st_buffer point polygon box circle geography geometry root
    path
""")
_SYSTEM = split_words("""
    version sqlite_version sqlite_source_id database schema current_database current_schema current_schemas
    current_catalog user current_user session_user system_user current_role connection_id pg_backend_pid
    current_setting pg_size_pretty pg_database_size pg_relation_size pg_total_relation_size pg_table_size
    pg_indexes_size pg_tablespace_size pg_column_size pg_get_viewdef pg_get_functiondef pg_get_constraintdef
    pg_get_indexdef pg_get_triggerdef pg_get_ruledef pg_get_expr pg_get_userbyid pg_get_function_arguments
    pg_get_function_identity_arguments pg_get_function_result pg_get_serial_sequence pg_get_keywords
    pg_get_partkeydef pg_encoding_to_char pg_client_encoding pg_table_is_visible pg_type_is_visible
    pg_function_is_visible pg_postmaster_start_time pg_conf_load_time pg_is_in_recovery pg_current_wal_lsn
    pg_last_wal_replay_lsn pg_last_wal_receive_lsn pg_last_xact_replay_timestamp pg_wal_lsn_diff pg_blocking_pids
    pg_tablespace_location pg_relation_filenode pg_my_temp_schema has_table_privilege has_schema_privilege
    has_database_privilege has_column_privilege has_function_privilege has_any_column_privilege
    has_sequence_privilege pg_has_role row_security_active obj_description col_description shobj_description
    format_type to_regclass to_regtype to_regproc to_regnamespace txid_current_if_assigned inet_server_addr
    inet_server_port inet_client_addr inet_client_port currval lastval last_insert_rowid changes
    total_changes found_rows row_count charset collation coercibility uuid uuid_short gen_random_uuid
    uuid_generate_v1 uuid_generate_v4 uuidv4 uuidv7 newid newsequentialid sys_guid db_name db_id object_id
    object_name object_schema_name object_definition schema_name schema_id type_name type_id col_name col_length
    columnproperty objectproperty objectpropertyex databasepropertyex serverproperty indexproperty index_col
    connectionproperty sessionproperty user_name user_id suser_name suser_sname host_name host_id app_name
    original_login scope_identity ident_current ident_seed ident_incr rowcount_big is_member is_srvrolemember
    has_perms_by_name has_dbaccess error_number error_message formatmessage sys_context userenv pragma_table_info
    pragma_table_xinfo pragma_table_list pragma_index_list pragma_index_info pragma_index_xinfo
    pragma_foreign_key_list pragma_database_list pragma_compile_options pragma_function_list pragma_module_list
    pragma_collation_list sqlite_compileoption_used sqlite_compileoption_get ps_current_thread_id format_bytes
    format_pico_time current_version current_warehouse current_account current_region current_session
""")

#: Functions that change nothing, reach no file and no network, take no lock and do not wait.
FUNCTIONS = _TEXT | _NUMBERS | _TIMES | _AGGREGATES | _CHOICES | _STRUCTURES | _SYSTEM
