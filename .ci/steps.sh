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
# does a run of more than an hour. More than 1.5 times the wall seconds are a line in the summary.

declare -A WALL CPU
STEPS=() # in the order in which they were run
STEPS_FOLDER=$(mktemp -d)
LONGEST_RUN=${LONGEST_RUN:-3600} # seconds
current="preparing"

budget() { WALL[$1]=$2 CPU[$1]=$3; }

measured() { # measured <folder> <command...>: keeps wall and processor seconds, and the exit code
	local folder=$1 code=0
	shift
	TIMEFORMAT='%R %U %S'
	# The pipeline's output goes through; what `time` says does not.
	{ time "$@" 2>&4; } 4>&2 2>"$folder/times" || code=$?
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
	local used
	used=$(awk '{print $2 + $3}' "$2/times")
	if awk "BEGIN { exit !($used > 1.5 * ${CPU[$1]}) }"; then
		echo "The step \"$1\" used $used processor seconds, more than 1.5 times its budget of ${CPU[$1]}."
		current="$1: over its budget of processor seconds"
		return 1
	fi
}

summary() { # used and budgeted seconds of each step, and the sums
	local entry name folder wall cpu note closing all_wall=0 all_cpu=0 may_wall=0 may_cpu=0
	printf '%15s  %15s\n' "wall seconds" "processor"
	for entry in "${STEPS[@]}"; do
		name=${entry%|*} folder=${entry##*|} note=
		[ -s "$folder/times" ] || continue
		read -r wall cpu < <(awk '{printf "%.0f %.0f\n", $1, $2 + $3}' "$folder/times")
		if [ "$((2 * wall))" -gt "$((3 * WALL[$name]))" ]; then note=" - more than 1.5 times its wall seconds"; fi
		closing=$(grep -E '^=+ .*(passed|failed|error).* =+$' "$folder/log" | tail -n 1 | tr -d '=' || true)
		printf '%6d of %5d  %6d of %5d  %s%s%s\n' "$wall" "${WALL[$name]}" "$cpu" "${CPU[$name]}" "$name" \
			"${closing:+:$closing}" "$note"
		all_wall=$((all_wall + wall)) all_cpu=$((all_cpu + cpu))
		may_wall=$((may_wall + WALL[$name])) may_cpu=$((may_cpu + CPU[$name]))
	done
	printf '%6d of %5d  %6d of %5d  all steps; the run took %d s\n' \
		"$all_wall" "$may_wall" "$all_cpu" "$may_cpu" "$SECONDS"
}

within_the_hour() {
	[ "$SECONDS" -le "$LONGEST_RUN" ] && return
	current="the run took $SECONDS s, and may take $LONGEST_RUN"
	return 1
}
