"""Writes `postgres_functions.txt`: the functions of PostgreSQL itself that a harmless statement may call.

`python -m tests.plugins.tools.execute_sql.server_functions URL...`, with one server of each major version. What a URL's
server does not have stays in the list only if another server has it, so name all of them.
"""

import asyncio
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from gateway.plugins.tools.execute_sql.postgres_functions import LIST, SOURCE

#: Functions of the server that are left out, by their names, and why.
EXCLUDED: Final = {
    r"pg_sleep.*": "waits",
    r"pg_(try_)?advisory_.*": "keeps a lock, or gives one up",
    r"nextval|setval": "changes a sequence",
    r"set_config|setseed": "changes a setting",
    r"txid_current|pg_current_xact_id": "takes a transaction's number for good",
    r"pg_notify": "speaks to other sessions",
    r"pg_(cancel|terminate)_backend|pg_log_backend_memory_contexts|pg_reload_conf|pg_rotate_logfile.*|pg_promote"
    r"|pg_get_process_memory_contexts": "reaches another session or the server",
    r"pg_switch_wal|pg_create_restore_point|pg_(start|stop)_backup|pg_backup_(start|stop)|pg_wal_replay_.*"
    r"|pg_log_standby_snapshot|pg_export_snapshot|pg_sync_replication_slots|pg_logical_.*|pg_(copy|create|drop)_.*_slot"
    r"|pg_replication_slot_advance|pg_replication_origin_.*|pg_import_system_collations": "changes the server's state",
    r"pg_stat_reset.*|pg_stat_clear_snapshot|pg_stat_force_next_flush|pg_(clear|restore)_.*_stats": "sets statistics",
    r"lo_.*|loread|lowrite": "reads, writes or makes large objects and files",
    r"pg_read_.*|pg_ls_.*|pg_stat_file|pg_hba_file_rules|pg_ident_file_mappings|pg_show_all_file_settings"
    r"|pg_current_logfile|pg_tablespace_databases|pg_available_wal_summaries|pg_wal_summary_contents": "reads files",
    r"(query|cursor|table|schema|database)_to_xml.*|ts_rewrite|ts_stat": "runs the text or the table that it is given",
    r"pg_input_.*|to_regtypemod|pg_get_object_address|satisfies_hash_partition|currtid2|amvalidate"
    r"|pg_index(am|_column)?_has_property|pg_indexam_progress_phasename": "calls what its argument names",
    r".*_validator|pg_jit_available": "loads a library",
    r"brin_(de)?summarize.*|gin_clean_pending_list|pg_extension_config_dump": "writes",
    r"binary_upgrade_.*|pg_nextoid|pg_stop_making_pinned_objects|pg_event_trigger_.*|pg_isolation_test_.*"
    r"|pg_get_shmem_allocations_numa": "is no function for users",
}
#: What takes or gives one of these is called by the server alone, and `domain_in` or `record_in` by any type's number.
INNER_TYPES: Final = (
    "internal cstring trigger event_trigger language_handler fdw_handler index_am_handler table_am_handler tsm_handler"
)

_ALL: Final = f"""SELECT p.oid, p.proname, oidvectortypes(p.proargtypes),
    {SOURCE}
    FROM pg_proc p WHERE p.oid < 10000 AND p.pronamespace = 'pg_catalog'::regnamespace AND NOT EXISTS (
        SELECT FROM unnest(p.proargtypes::oid[] || p.prorettype) used JOIN pg_type t ON t.oid = used
        WHERE t.typname = ANY(string_to_array($1, ' ')))"""
_EXCLUDED: Final = re.compile("|".join(EXCLUDED))


async def functions_of(connection: Any) -> Sequence[tuple[int, str, str, str]]:
    """Return number, name, types and source of the server's functions that are not excluded."""
    found = [tuple(row) for row in await connection.fetch(_ALL, INNER_TYPES)]
    return sorted(row for row in found if not _EXCLUDED.fullmatch(row[1]))


def written(functions: Iterable[tuple[int, str, str, str]]) -> str:
    """Return the list's text."""
    return "".join(f"{number}\t{name}({types})\t{source}\n" for number, name, types, source in functions)


async def main(urls: Sequence[str]) -> None:
    import asyncpg

    found = set[tuple[int, str, str, str]]()
    for url in urls:
        connection = await asyncpg.connect(url)
        found.update(await functions_of(connection))
        print(connection.get_server_version(), len(found))
        await connection.close()
    LIST.write_text(written(sorted(found)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
