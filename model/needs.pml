/* "What follows an end", as a model for spin: a job that needs two others, who end them, and two who look afterwards.
 *
 * Each SQL statement is one d_step. ``resolve`` is a transaction of several, so what one call has written is seen by
 * others at its commit only, and each of its statements sees what was committed before it. A call may be rolled back
 * before its commit: its process died. The job may begin to wait while what it needs ends (BEGINS_TO_WAIT).
 *
 * Each rule can be taken away by a switch (-DNAME). model/check.py knows what must go wrong then.
 */
#define OFF(switch) OFF_(switch)
#define OFF_(value) OFF__(COMMA_IF_##value)
#define OFF__(maybe) SECOND(maybe 1, 0)
#define SECOND(first, second, ...) second
#define COMMA_IF_1 0,

#define NEEDS 2
#define RESOLVERS 2
#define NOBODY 255
#define WAITER NEEDS /* the place of the note about the job that waits, behind those about its needs */
#define NOTES (NEEDS + 1)

mtype = { RUNNING, WAITING, PENDING };

/* Committed rows. */
mtype status;          /* of the job that needs the others */
bool done[NEEDS];      /* a needed job is over */
bool awaited[NEEDS];   /* its row says that another job needs it */
bool edge[NEEDS];      /* the row that says that the job needs it ... */
bool met[NEEDS];       /* ... and that it does no longer */
byte notes[NOTES];     /* rows in pulse_django_unresolved */

byte held_note[NOTES]; /* who has locked the notes of one kind */
byte held_job = NOBODY;

/* What each call has written and not committed. */
typedef Call { bool has[NOTES]; byte count[NOTES]; bool marks[NEEDS]; bool locks; bool leaves_note; bool frees; byte step }
Call call[RESOLVERS];

byte frees;            /* ghost: how often the job was freed */

bool started_early = true, freed_once = true, nobody_stranded = true, never_freed = true;
inline hold(name, fact) { name = (fact); assert(name) }

#define ALL_DONE (done[0] && done[1])
#define NO_NOTES (notes[0] == 0 && notes[1] == 0 && notes[2] == 0)
#define ALL_REST (call[0].step == 0 && call[1].step == 0)

inline look() {
    hold(started_early, status != PENDING || ALL_DONE);
    hold(freed_once, frees <= 1);
    hold(nobody_stranded, !(ALL_DONE && NO_NOTES && ALL_REST && begun == NEEDS && status == WAITING));
    hold(never_freed, !(OFF(SHOW_FREED) && status == PENDING))
}

byte begun;            /* needs whose end was written, and with what follows from it by the process that ended them */

/* The statement that ends a needed job writes the note, if the row says that somebody needs it. */
proctype Settler(byte me) {
#ifdef LOOKS_BEFORE_COMMIT
    /* It judges in its own transaction: it sees its own end, and what others have committed. */
    bool others;
    d_step { printf("Settler %d: ends its job, and looks at the other one\n", me); others = done[1 - me] };
    d_step { printf("Settler %d: commits\n", me);
        done[me] = true; met[me] = true; begun++;
        if :: others && status == WAITING -> status = PENDING; frees++ :: else -> skip fi;
        look() }
#elif defined(NOTES_AFTERWARDS)
    d_step { printf("Settler %d: ends its job\n", me); done[me] = true; look() };
    if
    :: d_step { printf("Settler %d: writes a note\n", me);
        if :: awaited[me] -> notes[me]++ :: else -> skip fi; begun++; look() }
    :: d_step { printf("Settler %d: dies\n", me); begun++; look() }
    fi
#else
    d_step { printf("Settler %d: ends its job, and notes it\n", me);
        done[me] = true; begun++;
        if :: awaited[me] -> notes[me]++ :: else -> skip fi;
        look() }
#endif
}

/* The job's own run: it writes down what it needs, and then that it waits. */
proctype Waiter() {
    d_step { printf("Waiter: writes down what it needs\n");
        edge[0] = true; edge[1] = true;
        awaited[0] = awaited[0] || !done[0]; awaited[1] = awaited[1] || !done[1] };
    d_step { printf("Waiter: waits\n");
        status = WAITING;
        notes[WAITER] = notes[WAITER] + !OFF(WAITS_WITHOUT_NOTE);
        look() }
}

inline forget(me) {
    held_note[0] = (held_note[0] == me -> NOBODY : held_note[0]);
    held_note[1] = (held_note[1] == me -> NOBODY : held_note[1]);
    held_note[2] = (held_note[2] == me -> NOBODY : held_note[2]);
    held_job = (held_job == me -> NOBODY : held_job);
    call[me].has[0] = false; call[me].has[1] = false; call[me].has[2] = false;
    call[me].count[0] = 0; call[me].count[1] = 0; call[me].count[2] = 0;
    call[me].marks[0] = false; call[me].marks[1] = false;
    call[me].locks = false; call[me].leaves_note = false; call[me].frees = false; call[me].step = 0
}

#define FREE_NOTE(n) (notes[n] > 0 && held_note[n] == NOBODY)
#define TAKES(n) (call[me].has[n])
#define SEES_MET(n) (!edge[n] || met[n] || call[me].marks[n])

inline take(n) {
    if :: FREE_NOTE(n) -> held_note[n] = me; call[me].has[n] = true; call[me].count[n] = notes[n] :: else -> skip fi
}

/* It judges a need by what is committed now. A note about the job itself makes it look at all that the job needs. */
inline mark(n) {
    if
    :: (TAKES(n) || TAKES(WAITER)) && edge[n] && !met[n] && (done[n] || OFF(MARKS_WITHOUT_LOOK)) -> call[me].marks[n] = true
    :: else -> skip
    fi
}

proctype Resolver(byte me) {
end:
    do
    :: d_step { call[me].step == 0 && (FREE_NOTE(0) || FREE_NOTE(1) || FREE_NOTE(2)) ->
        printf("Call %d: takes notes\n", me); take(0); take(1); take(2); call[me].step = 1 }
    :: d_step { call[me].step == 1 ->
        printf("Call %d: locks the job, if it can\n", me);
        if
        :: status == WAITING && (held_job == NOBODY || OFF(NO_LOCK)) ->
            call[me].locks = true; held_job = (OFF(NO_LOCK) -> held_job : me)
        :: else -> skip
        fi;
        call[me].step = 2 }
    :: d_step { call[me].step == 2 ->
        printf("Call %d: marks needs that are met\n", me); mark(0); mark(1);
        call[me].leaves_note = status == WAITING && !call[me].locks && !OFF(LEAVES_NO_NOTE);
        call[me].step = 3 }
    :: d_step { call[me].step == 3 ->
        printf("Call %d: looks whether a need is left\n", me);
        call[me].frees = (call[me].locks || OFF(FREES_UNLOCKED)) && status == WAITING && SEES_MET(0) && SEES_MET(1);
        call[me].step = 4 }
    :: d_step { call[me].step == 4 ->
        printf("Call %d: commits\n", me);
        met[0] = met[0] || call[me].marks[0];
        met[1] = met[1] || call[me].marks[1];
        notes[0] = notes[0] - call[me].count[0];
        notes[1] = notes[1] - call[me].count[1];
        notes[2] = notes[2] - call[me].count[2] + call[me].leaves_note;
        if
        :: call[me].frees && (status == WAITING || OFF(FREES_UNLOCKED)) -> status = PENDING; frees++
        :: else -> skip
        fi;
        forget(me);
        look() }
    :: d_step { call[me].step > 0 -> printf("Call %d: dies, and is rolled back\n", me); forget(me); look() }
    od
}

init {
    held_note[0] = NOBODY; held_note[1] = NOBODY; held_note[2] = NOBODY;
#ifdef BEGINS_TO_WAIT
    status = RUNNING;
#else
    status = WAITING; edge[0] = true; edge[1] = true; awaited[0] = true; awaited[1] = true;
#endif
    atomic {
#ifdef BEGINS_TO_WAIT
        run Waiter();
#endif
        run Settler(0); run Settler(1); run Resolver(0); run Resolver(1)
    }
}
