# Runs the steps of .ci/run, and holds each to its budget: sourced by it.
#
# budget "<step>" <wall seconds> <processor seconds>
#     declares what a step may take on two cores, its own processes and those that they waited for.
# step "<step>" <command...>
#     runs it, and prints what it says.
# beside "<step>" <command...>
#     runs it while other steps run: for steps that wait more than they compute. `join` waits for all of these.
#
# Machines are noisy, growth is not: a step that takes more than 1.5 times its processor seconds fails the run, and so
# does a run of more than an hour. More than 1.5 times the wall seconds are a line in the summary. The same machine may
# be half as fast an hour later, when others compute on it: pace.py measures that while the steps run, and on a slower
# machine each step may take as much more as fixed work took during the step.

declare -A WALL CPU
STEPS=() # in the order in which they were run
STEPS_FOLDER=$(mktemp -d)
: >"$STEPS_FOLDER/pace" # see keep_pace
LONGEST_RUN=${LONGEST_RUN:-3600} # seconds
current="preparing"

keep_pace() { # keep_pace <python>: measures how fast the machine is, until the run ends
	"$1" .ci/pace.py >"$STEPS_FOLDER/pace" &
}

pace() { # pace <since>: how many times slower than the budgets' machine this one was since then, 1 or more
	awk -v since="$1" '$1 >= since { print $2 }' "$STEPS_FOLDER/pace" | sort -n |
		awk '{ all[NR] = $1 } END { middle = all[int((NR + 1) / 2)]; print (middle > 1 ? middle : 1) }'
}

budget() { WALL[$1]=$2 CPU[$1]=$3; }

measured() { # measured <folder> <command...>: keeps wall and processor seconds, and the exit code
	local folder=$1 code=0
	shift
	TIMEFORMAT='%R %U %S'
	# The pipeline's output goes through; what `time` says does not.
	date +%s >"$folder/began"
	{ time "$@" 2>&4; } 4>&2 2>"$folder/times" || code=$?
	pace "$(cat "$folder/began")" >"$folder/pace"
	echo "$code" >"$folder/code"
}

begin() { # begin <step>: prints its folder
	[ -n "${WALL[$1]:-}" ] || { echo "The step \"$1\" has no budget." >&2; return 1; }
	mktemp -d "$STEPS_FOLDER/XXXXXX"
}

step() {
	current=$1
	local folder
	folder=$(begin "$1")
	STEPS+=("$1|$folder")
	shift
	printf '\n== %s\n' "$current"
	measured "$folder" "$@" 2>&1 | tee "$folder/log"
	conclude "$current" "$folder"
}

beside() {
	local name=$1 folder
	folder=$(begin "$1")
	STEPS+=("$1|$folder")
	shift
	printf '\n== %s (beside the others)\n' "$name"
	measured "$folder" "$@" >"$folder/log" 2>&1 </dev/null &
	echo "$!" >"$folder/pid"
}

join() { # waits for what runs beside, and prints what it said
	local entry name folder
	for entry in "${STEPS[@]}"; do
		name=${entry%|*} folder=${entry##*|}
		if [ -e "$folder/pid" ]; then
			current=$name
			wait "$(cat "$folder/pid")"
			rm "$folder/pid"
			printf '\n== %s\n' "$name"
			cat "$folder/log"
			conclude "$name" "$folder"
		fi
	done
}

conclude() { # conclude <step> <folder>: fails if the step failed, or used too much
	local code
	code=$(cat "$2/code")
	[ "$code" = 0 ] || return "$code"
	local used pace
	used=$(awk '{print $2 + $3}' "$2/times") pace=$(cat "$2/pace")
	if awk "BEGIN { exit !($used > 1.5 * $pace * ${CPU[$1]}) }"; then
		echo "The step \"$1\" used $used processor seconds, more than 1.5 times its budget of ${CPU[$1]} at pace $pace."
		current="$1: over its budget of processor seconds"
		return 1
	fi
}

summary() { # used and budgeted seconds of each step, and the sums
	local entry name folder wall cpu pace note closing all_wall=0 all_cpu=0 may_wall=0 may_cpu=0
	printf '%15s  %15s  %5s\n' "wall seconds" "processor" "slower"
	for entry in "${STEPS[@]}"; do
		name=${entry%|*} folder=${entry##*|} note=
		[ -s "$folder/times" ] || continue
		read -r wall cpu < <(awk '{printf "%.0f %.0f\n", $1, $2 + $3}' "$folder/times")
		pace=$(cat "$folder/pace")
		if awk "BEGIN { exit !($wall > 1.5 * $pace * ${WALL[$name]}) }"; then
			note=" - more than 1.5 times its wall seconds"
		fi
		closing=$(grep -E '^=+ .*(passed|failed|error).* =+$' "$folder/log" | tail -n 1 | tr -d '=' || true)
		printf '%6d of %5d  %6d of %5d  %5s  %s%s%s\n' "$wall" "${WALL[$name]}" "$cpu" "${CPU[$name]}" "$pace" "$name" \
			"${closing:+:$closing}" "$note"
		all_wall=$((all_wall + wall)) all_cpu=$((all_cpu + cpu))
		may_wall=$((may_wall + WALL[$name])) may_cpu=$((may_cpu + CPU[$name]))
	done
	printf '%6d of %5d  %6d of %5d         all steps; the run took %d s\n' \
		"$all_wall" "$may_wall" "$all_cpu" "$may_cpu" "$SECONDS"
}

within_the_hour() {
	local pace
	pace=$(pace 0)
	awk "BEGIN { exit !($SECONDS <= $LONGEST_RUN * $pace) }" && return
	current="the run took $SECONDS s, and may take $LONGEST_RUN at pace $pace"
	return 1
}
