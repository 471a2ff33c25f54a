/* "The claim is the lease", as a model for spin: one job, two workers of two threads each, one watchdog, one operator.
 *
 * Each SQL statement of pulse_django/queue/ is one d_step: PostgreSQL's row lock makes it so. Between two steps
 * anybody may be slow for as long as he likes, so every message may come late; the answer to a claim or to a report may
 * be lost, and then the report is sent again; a thread may die or be cut off with all that it knew. Time is not
 * counted: a lease may lapse whenever it is held, so no result here rests on anybody's clock.
 *
 * Each rule of the protocol can be taken away by a switch (-DNAME). model/check.py knows what must go wrong then.
 * Ghosts are what the model knows and no worker does: they appear in invariants only, never in a WHERE.
 */
#ifndef THREADS
#define THREADS 4 /* of two workers: those with even numbers are worker A's */
#endif
#ifndef MAX_ATTEMPTS
#define MAX_ATTEMPTS 2
#endif

/* OFF(a switch) is 1 where it is set by -D, and else 0. */
#define OFF(switch) OFF_(switch)
#define OFF_(value) OFF__(COMMA_IF_##value)
#define OFF__(maybe) SECOND(maybe 1, 0)
#define SECOND(first, second, ...) second
#define COMMA_IF_1 0,

#define RELEASES 1   /* accepted hand-backs; snoozes are the same statement */
#define MAX_LOST_WORKERS 2 /* with FREE_LOSSES only */
#define NETWORK THREADS /* holds one message whose sender has gone on to other work */
#define NOBODY 0

mtype = { PENDING, RUNNING, RETRYING, COMPLETED, DEAD_LETTERED, CANCELLED };

/* The job's row. PENDING and RETRYING are due at any time: there is no clock. */
mtype status = PENDING;
byte attempts, refunds, locked_by, token, losses;
bool leased;           /* lease_until is set ... */
bool lapsed;           /* ... and has passed */
bool overdue;          /* the deadline has passed; no beat mends that */
bool cancel_requested;
bool has_reason;       /* last_error is not empty */
byte sequence;         /* pulse_django_token */
bool hot = true;       /* its row is in the hot partition, which all statements name ... */
byte history;          /* ... or in that of a day, which none of them names */

/* What each thread, and the network, holds: the lease. */
byte holder[THREADS + 1], attempt[THREADS + 1];
bool saw_due[THREADS];      /* CLAIM_READS_THEN_WRITES */
byte drawn_token[THREADS];  /* TOKEN_BEFORE_CLAIM */

/* Ghosts. */
byte claims;                /* how many there were: the true name of each */
byte current;               /* the claim whose run goes on, or NOBODY's */
byte mine[THREADS + 1];     /* the claim that a lease came from */
byte highest_attempt, highest_token;
byte minted[16];            /* who was the last to be given this attempt */
byte successes, released, ended, ledger;
#ifdef DATABASE_FORGETS
mtype before;               /* the status that the last claim found, while nothing else was written */
bool may_forget, forgot;
#endif

/* The invariants, by the names that check.py reads in spin's "assertion violated". */
bool terminal_once = true, no_stale_settle = true, no_stale_heartbeat = true, one_current_holder = true,
     minted_once = true, attempts_rise = true, token_rises = true, running_iff_leased = true, budget_kept = true,
     cancel_wins = true, dead_has_reason = true, one_success = true, reap_has_reason = true, ledger_complete = true,
     retried_as_seen = true, in_one_place = true, never_seen = true;

#define WAITING (status == PENDING || status == RETRYING)
#define OVER (status == COMPLETED || status == DEAD_LETTERED || status == CANCELLED)
#define LEAVES (status == COMPLETED || status == CANCELLED) /* for good: a dead letter stays, for it may be retried */
#define SPENT (attempts - refunds >= MAX_ATTEMPTS)
#define HOLDS (mine[me] != NOBODY)

/* ------------------------------------------------------------------------------------------------------- the fence */

#define SAME_HOLDER (locked_by == holder[me])
#define SAME_ATTEMPT (attempts == attempt[me])
#define FENCE ((SAME_HOLDER && (SAME_ATTEMPT || OFF(NO_ATTEMPT_IN_FENCE))) \
    || (status == RUNNING && OFF(STATUS_ONLY_FENCE)))
#define BEAT_FENCE (FENCE || (status == RUNNING && (OFF(HEARTBEAT_UNFENCED) \
    || (SAME_ATTEMPT && OFF(HEARTBEAT_WITHOUT_HOLDER)))))
#define RELEASE_FENCE (FENCE || (status == RUNNING && OFF(RELEASE_UNFENCED)))
#define SETTLE_FENCE (FENCE || (status == DEAD_LETTERED && SAME_ATTEMPT && OFF(SETTLE_REVIVES_TERMINAL)))
#define SUCCESS_FENCE (SETTLE_FENCE || (status == COMPLETED && OFF(SUCCESS_ALWAYS_WELCOME)))

/* A new number for each claim statement. The worker's name in front of it would change nothing here. */
#define NEW_HOLDER (OFF(HOLDER_REUSED) -> 1 + me % 2 : claims)

/* -------------------------------------------------------------------------------------------------------- checking */

inline hold(name, fact) { name = (fact); assert(name) }

inline say_who() {
    if
    :: me == NETWORK -> printf("A late message of attempt %d arrives: ", attempt[me])
    :: else -> printf("Worker %c, thread %d: ", 65 + me % 2, 1 + me / 2)
    fi
}

inline say_answer(arrives) { if :: arrives -> printf("\n") :: else -> printf(", and the answer is lost\n") fi }

/* An invariant says nothing of what cannot happen. These two must: each is denied by its switch, which has to break. */
#define ZOMBIES (mine[0] != NOBODY && mine[1] != NOBODY && mine[THREADS - 1] != NOBODY && mine[NETWORK] != NOBODY)
#define LONGEST_LIFE (claims == MAX_ATTEMPTS + RELEASES + 1 && status == COMPLETED)

/* What must be so after every statement, because everybody may look then. */
inline look_at_row() {
    printf("    %e: attempts %d, refunds %d, locked_by %d, token %d\n", status, attempts, refunds, locked_by, token);
    hold(running_iff_leased, (status == RUNNING) == (locked_by != NOBODY && leased && token != 0));
    hold(budget_kept, refunds <= attempts && attempts - refunds <= MAX_ATTEMPTS && !(WAITING && SPENT));
    hold(cancel_wins, !cancel_requested || status == RUNNING || status == COMPLETED || status == CANCELLED);
    hold(dead_has_reason, status != DEAD_LETTERED || has_reason);
    hold(one_success, successes == (status == COMPLETED));
    hold(ledger_complete, ledger == ended);
    hold(in_one_place, hot + history == 1 && (history == 1) == LEAVES);
    hold(never_seen, !(OFF(SHOW_ZOMBIES) && ZOMBIES) && !(OFF(SHOW_LONGEST_LIFE) && LONGEST_LIFE))
}

inline forget_lease(who) { mine[who] = NOBODY; holder[who] = NOBODY; attempt[who] = 0 }

/* One statement deletes the row here and inserts it there. */
inline leave_if_over() {
    if
    :: LEAVES -> hot = OFF(LEAVES_BY_COPY); history = history + !OFF(LEAVES_IN_TWO_STATEMENTS)
    :: else -> skip
    fi
}

inline written() {
#ifdef DATABASE_FORGETS
    may_forget = false; before = 0;
#endif
    skip
}

/* ----------------------------------------------------------------------------------------------------------- claim */

#define DUE (WAITING && locked_by == NOBODY)

/* The first of a worker's idle threads claims: which of them does makes no difference, and a smaller model. */
#define IS_NEXT (!HOLDS && (me < 2 || mine[me - 2] != NOBODY))

inline claim(answered) {
    say_who();
    printf("claims the job");
    say_answer(answered);
    hold(terminal_once, !OVER);
    hold(one_current_holder, current == NOBODY);
#ifdef DATABASE_FORGETS
    before = status; may_forget = !forgot;
#endif
    claims++;
    current = claims;
    status = RUNNING;
    attempts++;
    locked_by = NEW_HOLDER;
    lapsed = false;
    overdue = false;
    leased = !OFF(RUNNING_BEFORE_LEASE);
#ifdef TOKEN_BEFORE_CLAIM
    token = drawn_token[me]; drawn_token[me] = 0;
#else
    sequence++; token = sequence;
#endif
    hold(minted_once, minted[attempts] != locked_by);
    minted[attempts] = locked_by;
#ifndef DATABASE_FORGETS /* then a number may come again: the fence must do without */
    hold(attempts_rise, attempts > highest_attempt);
    highest_attempt = attempts;
#endif
#if !defined(DATABASE_FORGETS) || defined(TOKENS_STILL_TRUSTED)
    hold(token_rises, token > highest_token);
    highest_token = token;
#endif
    if
    :: answered -> mine[me] = claims; holder[me] = locked_by; attempt[me] = attempts
    :: else -> skip
    fi;
    look_at_row()
}

/* ------------------------------------------------------------------------------------------------------- heartbeat */

inline heartbeat() {
    say_who();
    printf("heartbeat, accepted\n");
    hold(no_stale_heartbeat, current == mine[me]);
    written();
    lapsed = false;
    if :: me == NETWORK -> forget_lease(me) :: else -> skip fi
}

/* ------------------------------------------------------------------------------------- settle, the door of workers */

inline end_run(verdict) {
    hold(terminal_once, !OVER);
    status = verdict;
    locked_by = NOBODY; leased = false; token = 0; lapsed = false; overdue = false;
    current = NOBODY;
    ended++;
    leave_if_over();
    written()
}

/* ``wanted`` is the worker's decision; a cancellation and a spent budget are the statement's to judge. */
inline settle(wanted, refund, answered) {
    say_who();
    printf("settles as %e, accepted", wanted);
    say_answer(answered);
    successes = successes + (wanted == COMPLETED);
    hold(one_success, successes <= 1);
    hold(terminal_once, !OVER);
    hold(no_stale_settle, current == mine[me]);
    has_reason = (has_reason || wanted == RETRYING || wanted == DEAD_LETTERED) && !OFF(DEAD_WITHOUT_REASON);
    ledger = ledger + !OFF(LEDGER_AFTERWARDS);
    released = released + refund;
    end_run((wanted == COMPLETED || wanted == CANCELLED -> wanted
        : (cancel_requested && !OFF(SETTLE_IGNORES_CANCEL) -> CANCELLED
        : (wanted == RETRYING && SPENT -> DEAD_LETTERED : wanted))));
    refunds = refunds + refund;
    if :: answered -> forget_lease(me) :: else -> skip fi;
    look_at_row()
}

/* Whoever's answer is lost still holds what he reported, so he may report again: the same, or something else. */
#define REPORTS(fence, verdict, refund) \
    :: d_step { HOLDS && fence -> settle(verdict, refund, true) } \
    :: d_step { HOLDS && fence -> settle(verdict, refund, false) }

/* A thread, or the network. A report or beat that is refused tells its thread that the lease is lost; that of a thread
 * which never hears of it changes nothing at all, so it needs no step. */
proctype Party(byte me) {
end:
    do
#if defined(CLAIM_READS_THEN_WRITES)
    :: d_step { me != NETWORK && IS_NEXT && DUE && !saw_due[me] ->
        say_who(); printf("reads that the job is due\n"); saw_due[me] = true }
    :: d_step { me != NETWORK && saw_due[me] && !OVER -> saw_due[me] = false; claim(true) }
#elif defined(TOKEN_BEFORE_CLAIM)
    :: d_step { me != NETWORK && !HOLDS && DUE && drawn_token[me] == 0 ->
        sequence++; drawn_token[me] = sequence; say_who(); printf("draws token %d\n", sequence) }
    :: d_step { me != NETWORK && !HOLDS && DUE && drawn_token[me] != 0 -> claim(true) }
#else
    :: d_step { me != NETWORK && IS_NEXT && DUE -> claim(true) }
    :: d_step { me != NETWORK && IS_NEXT && DUE -> claim(false) }
#endif
    REPORTS(SUCCESS_FENCE, COMPLETED, 0)
    REPORTS(SETTLE_FENCE, RETRYING, 0)
    REPORTS(SETTLE_FENCE, DEAD_LETTERED, 0)
    REPORTS(SETTLE_FENCE, CANCELLED, 0)
    REPORTS(RELEASE_FENCE && released < RELEASES, PENDING, 1)
#ifndef DELETE_ON_CLAIM
    :: d_step { HOLDS && BEAT_FENCE -> heartbeat() }
#endif
    :: d_step { HOLDS && !FENCE -> say_who(); printf("is told that its lease is lost\n"); forget_lease(me) }
    :: d_step { HOLDS && me != NETWORK ->
        say_who(); printf("dies or is cut off, and knows nothing any more\n"); forget_lease(me) }
    :: d_step { HOLDS && me != NETWORK && mine[NETWORK] == NOBODY ->
        say_who(); printf("gives up waiting for its message of attempt %d\n", attempt[me]);
        mine[NETWORK] = mine[me]; holder[NETWORK] = holder[me]; attempt[NETWORK] = attempt[me];
        forget_lease(me) }
    :: d_step { HOLDS && me == NETWORK ->
        printf("A late message of attempt %d is lost\n", attempt[me]); forget_lease(me) }
    od
}

/* ----------------------------------------------------------------------------------------- time, reap, the operator */

proctype Time() {
end:
    do
    :: d_step { leased && !lapsed -> printf("Time: the lease lapses\n"); lapsed = true }
    od
}

/* A process of its own: a lease that lapses again and again must not keep the deadline from passing. */
proctype Deadline() {
end:
    do
    :: d_step { leased && !overdue -> printf("Time: the deadline passes\n"); overdue = true }
    od
}

#define REAPABLE (status == RUNNING && (lapsed || overdue))

#define REAP_CANCELS (cancel_requested && !OFF(REAP_IGNORES_CANCEL))
#define LOSS_IS_FREE (lapsed && OFF(FREE_LOSSES))
#define REAP_SPENT (SPENT && !LOSS_IS_FREE && !OFF(REAP_WITHOUT_BUDGET))

inline reap() {
    printf("Watchdog: reaps attempt %d\n", attempts);
    hold(terminal_once, !OVER);
    hold(reap_has_reason, status == RUNNING && (lapsed || overdue));
    has_reason = true;
    ledger++;
    attempts = attempts - OFF(REAPER_REFUNDS);
    killed = LOSS_IS_FREE && losses + 1 >= MAX_LOST_WORKERS;
    losses = losses + LOSS_IS_FREE;
    refunds = refunds + (LOSS_IS_FREE && !killed && !REAP_CANCELS);
    end_run((REAP_CANCELS -> CANCELLED : (killed || REAP_SPENT -> DEAD_LETTERED : RETRYING)));
    look_at_row()
}

/* It remembers nothing between two statements, so one of it is as good as many. */
proctype Watchdog() {
    byte seen_holder, seen_attempt; bool killed;
end:
    do
#if defined(REAP_READS_THEN_WRITES) || defined(REAP_WITHOUT_REASON)
    :: d_step { REAPABLE && seen_attempt == 0 ->
        printf("Watchdog: reads that attempt %d is to be reaped\n", attempts);
        seen_holder = locked_by; seen_attempt = attempts }
#ifdef REAP_READS_THEN_WRITES /* UPDATE ... WHERE id */
    :: d_step { seen_attempt != 0 -> seen_attempt = 0; reap() }
#else /* the fence, but not the reason */
#define SAME_RUN (locked_by == seen_holder && attempts == seen_attempt)
    :: d_step { seen_attempt != 0 && SAME_RUN -> seen_attempt = 0; reap() }
    :: d_step { seen_attempt != 0 && !SAME_RUN -> seen_attempt = 0 }
#endif
#else
    :: d_step { REAPABLE -> reap() }
#endif
    od
}

#define RUNS_LEFT (MAX_ATTEMPTS - attempts + refunds)

inline retry() {
    printf("Operator: retries what died in attempt %d\n", seen);
    hold(retried_as_seen, attempts == seen);
    status = PENDING;
    cancel_requested = false;
    written();
    refunds = refunds + (RUNS_LEFT < 1 && !OFF(RETRY_GRANTS_NOTHING) -> 1 - RUNS_LEFT : 0);
    refunds = (OFF(RETRY_LOWERS_ATTEMPTS) -> 0 : refunds);
    attempts = (OFF(RETRY_LOWERS_ATTEMPTS) -> 0 : attempts);
    look_at_row()
}

#define AS_SEEN (attempts == seen || OFF(RETRY_WITHOUT_ATTEMPT))

/* One cancel and one retry, which is sent twice if its answer is lost. Or none of them: he may go home at any time. */
proctype Operator() {
    byte seen, sent; bool asked;
end:
    do
    :: d_step { !asked && !OVER ->
        asked = true; cancel_requested = true; written();
        if
        :: locked_by == NOBODY -> printf("Operator: cancels the job\n"); status = CANCELLED; leave_if_over()
        :: else -> printf("Operator: asks the run to stop\n")
        fi;
        look_at_row() }
    :: d_step { seen == 0 && status == DEAD_LETTERED ->
        seen = attempts; printf("Operator: looks at the dead letter\n") }
    :: d_step { seen != 0 && sent < 2 && status == DEAD_LETTERED && AS_SEEN -> sent++; retry() }
    :: true -> break
    od
}

#ifdef DATABASE_FORGETS
/* A crash without synchronous_commit, or a standby that was behind: the claim was answered, and is gone. */
proctype Crash() {
end:
    d_step { may_forget ->
        printf("Database: forgets the claim of attempt %d\n", attempts);
        forgot = true; status = before; attempts--; sequence--; token = 0;
        locked_by = NOBODY; leased = false; lapsed = false; overdue = false; current = NOBODY;
        written() }
}
#endif

init {
    atomic {
        byte party = 0;
        do :: party <= NETWORK -> run Party(party); party++ :: else -> break od;
        run Time(); run Operator();
#ifndef NO_DEADLINE
        run Deadline();
#endif
#if !defined(NO_WATCHDOG) && !defined(DELETE_ON_CLAIM) /* with the latter there is no row for it to find */
        run Watchdog();
#endif
#ifdef DATABASE_FORGETS
        run Crash();
#endif
    }
}

#ifdef LIVE
/* Nothing is lost: if workers, watchdog and time go on (weak fairness), the job ends, after a retry as well. */
ltl finishes { [] (<> OVER) }
#endif
