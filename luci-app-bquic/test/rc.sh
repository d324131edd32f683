# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC1090,SC2034,SC3043,SC3045
# The OpenWrt functions that init scripts call. They record each call: a line per
# call, its words separated by |. Sections and options come from the environment:
# SECTIONS="type/name ...", O_name_option=value.
#   rc.sh SCRIPT FUNCTION [ARGUMENT]

say() { local IFS='|'; printf '%s\n' "$*"; }

config_load() {
	local s o
	for s in $SECTIONS; do
		CONFIG_SECTION="${s#*/}"
		for o in $(env | sed -n "s/^O_${CONFIG_SECTION}_\([^=]*\)=.*/\1/p"); do
			option_cb "$o"
		done
	done
}
config_get() {
	local s
	for s in $SECTIONS; do
		[ "$3 ${s#*/}" != "TYPE $2" ] || eval "O_$2_TYPE=\"${s%/*}\""
	done
	eval "$1=\"\${O_$2_$3:-\${4:-}}\""
}
config_foreach() {
	local fn="$1" type="$2" s
	shift 2
	for s in $SECTIONS; do
		case "$type" in '' | "${s%/*}") "$fn" "${s#*/}" "$@" ;; esac
	done
}
# UNREADABLE: uci's complaint about a file.
uci() { [ -z "${UNREADABLE:-}" ] || { echo "uci: $UNREADABLE" >&2; return 1; }; }
# OpenWrt's validate_data leaves out the values of a list that are not valid. Only the last one makes it fail.
only_addresses() {
	local v values good=''
	eval "values=\"\$$1\""
	for v in $values; do
		case "$v" in *[!0-9A-Fa-f:.]*) ;; *) good="$good $v" ;; esac
	done
	eval "$1=\"\$good\""
}
uci_load_validate() {
	local name="$3" fn="$4" o v
	shift 4
	for o in "$@"; do
		v="${o#*:*:}"
		[ "$v" != "$o" ] || v=''
		config_get "${o%%:*}" "$name" "${o%%:*}" "$v"
		case "$o" in *:list*addr*) only_addresses "${o%%:*}" ;; esac
		# range() takes a number after a blank, but what is printed then is no assignment for the shell; uinteger does not
		eval "v=\$${o%%:*}"
		case "$v:$o" in
		' '*:*uinteger*) INVALID=${o%%:*} ;;
		' '*:*range*) eval "${o%%:*}=''" ;;
		esac
	done
	# INVALID: an option that has an invalid value. OpenWrt's validate_data then tells of all options.
	local result=0
	if [ -n "${INVALID:-}" ]; then
		result=1
		config_get v "$name" "$INVALID"
		local type=''
		for o in "$@"; do
			case "$o" in "$INVALID":*) type="${o#*:}"; type="${type%%:*}" ;; esac
		done
		printf '%s\n' "wifirr.$name.enabled=1 validates as bool with true" "wifirr.$name.$INVALID=$v validates as $type with false" >&2
	fi
	[ -n "$fn" ] || return $result
	"$fn" "$name" $result
}
# TEST_USER: the user ID of the daemon; if set, there is a jail, too.
user_exists() { [ -n "${TEST_USER:-}" ]; }
group_exists() { [ -n "${TEST_USER:-}" ]; }
id() { echo "$TEST_USER"; }
# wifirr's name for it is not known here
chown() {
	local word
	for word in "$@"; do
		shift
		case "$word" in wifirr:wifirr) word="$TEST_USER:$TEST_USER" ;; esac
		set -- "$@" "$word"
	done
	command chown "$@"
}
logger() {
	local text
	case " $* " in *' -s '*) say log "$@" ;; *) text="$(cat)"; [ -z "$text" ] || say log "$text" ;; esac
}
extra_command() { :; }
# TEST_KERNEL: change the settings of this network namespace.
[ -n "${TEST_KERNEL:-}" ] || sysctl() { if [ "$1" = -n ]; then echo "${TEST_SYSCTL:-1}"; else say sysctl "$@"; fi; }
# Like rc.common: it goes on whatever start_service returns. After set, procd ends the instances that were not named.
start() {
	local method=set result=0
	start_service "$@" || result=$?
	say procd_close_service "$method"
	! type service_started >/dev/null 2>&1 || service_started
	return $result
}
# Like rc.common, of the whole service or of an instance.
stop() {
	! type stop_service >/dev/null 2>&1 || stop_service "$@"
	say procd_kill "$@"
	service_stopped
}
procd_running() { case " ${RUNNING:-} " in *" $2 "*) ;; *) return 1 ;; esac; }

# Like procd.sh, which takes its arguments apart once more.
# shellcheck disable=SC2048
mount_as() { word=$1; shift; for path in $*; do say "$word" "$path"; done; }
procd_add_jail_mount() { mount_as procd_add_jail_mount "$@"; }
procd_add_jail_mount_rw() { mount_as procd_add_jail_mount_rw "$@"; }
for f in procd_open_instance procd_close_instance procd_set_param procd_add_jail procd_open_data \
	procd_close_data procd_kill procd_add_reload_trigger procd_set_config_changed procd_send_signal \
	json_add_object json_close_object json_add_array json_close_array json_add_string; do
	eval "$f() { say $f \"\$@\"; }"
done

. "$1"
PROG="${TEST_PROG:-$PROG}" CONFIG="${TEST_CONFIG:-${CONFIG:-}}" RUN="${TEST_RUN:-${RUN:-}}" DIR="${TEST_DIR:-${DIR:-}}"
[ -z "${TEST_USER:-}" ] || UJAIL=/bin/sh
shift
"$@"
