"""Which target of the Makefile runs a test: by where it stands, or because it starts a real worker."""

from __future__ import annotations

# The first that fits. Everything else is quick: ``make test``.
TARGETS = {
    "theme": ("browser/test_themes.py",),
    "browser": (
        "browser/",
        "console/test_every_page.py",
        "console/test_german_pages.py",
        "console/test_instants.py",
        "console/test_job_list.py::TestNonsense",
        "console/test_languages.py",
        "security/test_sql.py::test_addresses_of_the_admin",
    ),
    "proof": (
        "crash/test_failover.py",
        "health/test_agreement.py",
        "plans/",
        "queue/test_dumps.py",
        "queue/test_migrations.py",
        "queue/test_payload_size.py",
        "queue/test_round_trip.py",
        "queue/test_state_machine.py",
        "queue/test_torture.py",
        "run/test_typing.py",
        "schedules/test_ticking.py::TestPausesAndChanges::test_each_edit_with_each_policy",
        "security/test_bounded_columns.py::test_each_column",
        "security/test_shadows.py",
        "security/test_shapes.py",
        "security/test_statements_of_roles.py::test_a_role_may_send_each_statement_of_the_pages",
        "security/test_statements_of_roles.py::test_each_right_is_needed_by_a_statement",
        "shards/test_moving.py::test_a_mover_that_is_killed_again_and_again_loses_nothing",
        "citus/test_one_level.py",
        "sql_enqueue/test_torture.py",
        "unique/test_unique.py::TestEveryVerb",
        "unique/test_unique_torture.py",
        "test_benchmarks.py",
        "test_model.py",
        "test_new_option.py",
        "test_package.py",
        "test_tutorial.py",
    ),
    "fresh": ("fresh/", "test_demo.py", "test_postgres_starter.py"),
    "crash": ("crash/",),
}
# One test with a real process for each class of failure. ``make test`` runs these as well.
FIRST_OF_EACH = {
    "killed": "crash/test_worker.py::test_a_task_survives_the_kill_of_its_worker",
    "frozen": "crash/test_children.py::test_a_child_that_shows_no_sign_of_life_is_killed_and_recovered",
    "cut off": "crash/test_database_trouble.py::test_a_connection_that_swallows_everything_is_noticed_and_left",
    "out of descriptors": (
        "crash/test_useless_processes.py::TestAChildThatCannotReport"
        "::test_its_results_are_kept_and_it_is_replaced[leaks_descriptors]"
    ),
    "out of memory": "crash/test_children.py::test_a_process_that_uses_too_much_memory_is_replaced_after_its_jobs",
    "stuck": "crash/test_children.py::test_stuck_slots_are_shown_and_their_process_is_replaced_when_it_has_no_other",
    "thread lost": (
        "crash/test_useless_processes.py::test_a_process_that_lost_a_thread_ends_and_what_it_held_is_recovered[event-loop]"
    ),
    "database away": "crash/test_database_trouble.py::test_a_server_that_hangs_up_on_everybody_is_asked_again",
    "table locked": "crash/test_locks_and_full_disks.py::test_a_locked_table_costs_neither_connections_nor_runs",
    "stopping": "crash/test_stopping.py::test_what_has_not_begun_is_handed_back_at_once",
    "chunk": "chunks/test_crashes.py::test_a_process_that_is_killed_loses_the_jobs_that_were_not_decided",
    "workflow": "workflows/test_crashes.py::test_what_a_worker_left_when_it_was_killed_is_followed_by_another",
}
# What another version of Django can change: its Tasks, its admin, what its ORM compiles.
DJANGO_VERSIONS = (
    "chunks/test_chunks.py",
    "console/test_acts.py",
    "console/test_admin.py",
    "console/test_every_page.py",
    "console/test_job_list.py",
    "encryption/test_masking.py",
    "encryption/test_searched_tasks.py",
    "health/test_command.py",
    "health/test_conditions.py",
    "limits/test_limited_tasks.py",
    "operations/",
    "pauses/test_command.py",
    "queue/test_claim.py",
    "queue/test_enqueue.py",
    "queue/test_reap.py",
    "queue/test_settle.py",
    "queue/test_transitions.py",
    "run/",
    "unique/test_unique_tasks.py",
    "workflows/test_command.py",
    "workflows/test_other_backends.py",
    "test_conf.py",
)
# What another version of anything can change, so that CI runs it with several: coroutines, threads and tracebacks of
# Python, and plans and catalogues of PostgreSQL, too.
VERSIONS = (
    *DJANGO_VERSIONS,
    "citus/test_nodes.py",
    "citus/test_one_level.py",
    "citus/test_one_node.py",
    "crash/test_worker.py",
    "metrics/test_minute_stats.py",
    "metrics/test_traffic.py",
    "plans/test_plans.py",
    "queue/test_constraints.py",
    "queue/test_dumps.py",
    "queue/test_duties.py",
    "queue/test_eras.py",
    "queue/test_error_groups.py",
    "queue/test_job_queries.py",
    "queue/test_migrations.py",
    "queue/test_payload_size.py",
    "queue/test_prepared_statements.py",
    "queue/test_round_trip.py",
    "queue/test_transactions.py",
    "security/test_reprs.py",
    "shards/test_sequences.py",
    "worker/test_connection_cleanup.py",
    "worker/test_executors.py",
    "worker/test_handler_stacks.py",
    "worker/test_survival.py",
    "worker/test_threads.py",
    "test_package.py",
    "test_tutorial.py",
)


def target_of(nodeid: str, *, starts_workers: bool) -> str:
    """Return the marker of the target that runs this test."""
    path = nodeid.removeprefix("tests/")
    for target, starts in TARGETS.items():
        if path.startswith(starts):
            return target
    return "crash" if starts_workers else "quick"
