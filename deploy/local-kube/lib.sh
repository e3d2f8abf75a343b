# Sourced by the scripts of this directory: settings, processes, certificates, kubeconfigs, addresses.
# Each setting can be overridden by the environment.
: "${DROVER_CACHE:=$HOME/.cache/drover}"
LOCAL_KUBE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REAL_NET=172.31.77 UPLINK=drover-root # the bridge that real nodes and their control planes share, and the machine's end of it

say() { echo "$*" >&2; }
die() { say "local-kube: $*"; exit 1; }

# need PACKAGE... : exits with the names of the Debian packages whose programs are missing (PROGRAM=PACKAGE where they differ)
need() {
  local p missing=()
  for p; do PATH=$PATH:/usr/sbin:/sbin command -v "${p%%=*}" >/dev/null || missing+=("${p##*=}"); done
  [ ${#missing[@]} = 0 ] || die "missing: ${missing[*]} (as root: apt-get install -y ${missing[*]})"
}

# --- processes: DIR/pid/NAME has "pid starttime", so that another process with the same pid is not mistaken for ours ---

# started_at PID: prints when the process started, in ticks since boot; fails if it has ended (zombies included)
started_at() { local s; s=$(cat "/proc/$1/stat" 2>/dev/null) || return 1; s=(${s##*) }); [ "${s[0]}" != Z ] && echo "${s[19]}"; }

# pid_of DIR NAME: prints the pid if the recorded process still runs
pid_of() {
  local p t
  { read -r p t <"$1/pid/$2"; } 2>/dev/null && [ "$(started_at "$p")" = "$t" ] && echo "$p"
}

# start DIR NAME CMD... : runs CMD detached, log in DIR/log/NAME.log; does nothing if it already runs. The child records its pid
# before it executes CMD, and keeps the set's lock (fd 9) until then: killing the starter leaves no unrecorded process.
start() {
  local d=$1 n=$2
  shift 2
  pid_of "$d" "$n" >/dev/null && return
  mkdir -p "$d/log" "$d/pid"
  setsid bash -c 's=$(</proc/$$/stat); s=(${s##*) }); echo "$$ ${s[19]}" >"$0"; exec 9>&-; exec "$@"' "$d/pid/$n" "$@" >>"$d/log/$n.log" 2>&1 </dev/null &
}

# stop DIR NAME... : sends TERM to all, and KILL to those left after 5 s (KILL at once with STOP_NOW=1)
stop() {
  local d=$1 n p pids=() signal=TERM
  shift
  [ -z "${STOP_NOW:-}" ] || signal=KILL
  for n; do
    p=$(pid_of "$d" "$n") && pids+=("$p") && kill -$signal "$p" 2>/dev/null
    rm -f "$d/pid/$n"
  done
  for _ in $(seq 50); do
    for p in "${pids[@]}"; do started_at "$p" >/dev/null && sleep 0.1 && continue 2; done
    return 0
  done
  kill -KILL "${pids[@]}" 2>/dev/null || true
}

# wait_for SECONDS WHAT CMD... : polls until CMD succeeds
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { say "timed out: $what"; return 1; }
    sleep 0.1
  done
}

# --- addresses: each control plane and each real node claims its own, in one directory for all sets of this user ---

# free ADDRESS: whether no program has the ports of ADDRESS open. An address of the bridge is asked only if the way to it is the bridge:
# without the bridge, or with half of it, the machine's default gateway gets the packets and may answer for everybody.
free() {
  local port
  case $1 in $REAL_NET.*) [[ $(PATH=$PATH:/usr/sbin:/sbin ip -o route get "$1" 2>/dev/null) =~ \ dev\ (lo|$UPLINK)\  ]] || return 0 ;; esac
  for port in 6443 2379 10250; do ! (exec 3<>"/dev/tcp/$1/$port") 2>/dev/null || return 1; done
}

# claim_address NET FIRST LAST HOLDER: prints HOLDER's address NET.n, the recorded one unless another holder has claimed it since.
# If all are taken, it waits ADDRESS_WAIT seconds for one (default 0) and then fails.
claim_address() {
  local end=$((SECONDS + ${ADDRESS_WAIT:-0}))
  until try_claim "$@"; do
    [ $SECONDS -lt $end ] || die "no free address in $1.$2-$3"
    sleep 1
  done
}

# holder_of ADDRESS: prints who has claimed it. A claim is void if its holder does not record the address, so nothing has to be cleaned up
# after a kill.
holder_of() { local c; c=$(cat "$DROVER_CACHE/run/addresses/$1" 2>/dev/null) && [ "$(cat "$c/ip" 2>/dev/null)" = "$1" ] && echo "$c"; }

try_claim() {
  local net=$1 i=$2 last=$3 holder=$4 claims=$DROVER_CACHE/run/addresses a c
  mkdir -p "$claims" "$holder"
  (
    flock 7
    a=$(cat "$holder/ip" 2>/dev/null) && [ "$(holder_of "$a")" = "$holder" ] && { echo "$a"; exit; }
    for ((; i <= last; i++)); do
      a=$net.$i
      c=$(holder_of "$a") && [ "$c" != "$holder" ] && continue
      free "$a" || continue
      echo "$holder" >"$claims/$a"
      echo "$a" >"$holder/ip"
      echo "$a"
      exit
    done
    exit 1
  ) 7>"$claims/.lock"
}

# --- certificates: one CA per set, EC keys (fast); a directory gets its name only when complete ---

make_ca() {
  local c d=$1
  [ -d "$d" ] && return
  rm -rf "$d.partial"
  mkdir -p "$d.partial"
  for c in ca front-proxy-ca; do
    openssl ecparam -name prime256v1 -genkey -noout -out "$d.partial/$c.key"
    openssl req -x509 -new -sha256 -key "$d.partial/$c.key" -days 3650 -subj "/CN=local-kube-$c" -out "$d.partial/$c.crt" \
      -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature 2>/dev/null
  done
  mv "$d.partial" "$d"
}

# cert CA-PREFIX OUT-PREFIX SUBJECT SAN
cert() {
  local ca=$1 o=$2 subject=$3 san=$4
  openssl ecparam -name prime256v1 -genkey -noout -out "$o.key"
  openssl req -new -sha256 -key "$o.key" -subj "$subject" -out "$o.csr"
  printf '%s\n' basicConstraints=CA:FALSE keyUsage=digitalSignature,keyEncipherment extendedKeyUsage=serverAuth,clientAuth ${san:+"subjectAltName=$san"} >"$o.ext"
  openssl x509 -req -sha256 -in "$o.csr" -CA "$ca.crt" -CAkey "$ca.key" -set_serial "0x$(openssl rand -hex 8)" -days 3650 -extfile "$o.ext" -out "$o.crt" 2>/dev/null
  rm "$o.csr" "$o.ext"
}

inline() { base64 -w0 "$1"; }

# kubeconfig FILE CLUSTER SERVER CA-CERT USER-FIELDS: with all certificates inline, because Drover refuses file paths
kubeconfig() {
  (umask 077; cat >"$1") <<Y
apiVersion: v1
kind: Config
clusters: [{name: $2, cluster: {server: "$3", certificate-authority-data: $(inline "$4")}}]
users: [{name: $2, user: {$5}}]
contexts: [{name: $2, context: {cluster: $2, user: $2}}]
current-context: $2
Y
}
