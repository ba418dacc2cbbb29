package broker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// installable says whether install can work: on Debian and its kin, as root.
func installable() bool {
	_, err := exec.LookPath("apt-get")
	return err == nil && os.Geteuid() == 0
}

// installScript installs the package without starting its service, neither now
// nor at the next boot. The policy is how Debian lets an administrator say so;
// the one that was there before comes back. Two at once do not disturb each other.
const installScript = `
set -eu
exec 9>"${TMPDIR:-/tmp}/rehop-install-rabbitmq.lock"
flock 9
[ ! -e ` + debianBin + `/rabbitmq-server ] || exit 0
policy=/usr/sbin/policy-rc.d
restore() {
	rm -f $policy
	[ ! -e $policy.rehop ] || mv $policy.rehop $policy
}
[ ! -e $policy ] || mv $policy $policy.rehop
trap restore EXIT
trap 'exit 1' HUP INT TERM
printf '#!/bin/sh\nexit 101\n' >$policy
chmod 755 $policy
export DEBIAN_FRONTEND=noninteractive
quiet='-qq -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0'
apt-get $quiet update || true # one dead source of many must not stop us
apt-get $quiet install -y --no-install-recommends rabbitmq-server
update-rc.d rabbitmq-server disable
`

func install(ctx context.Context) error {
	var output strings.Builder
	cmd := exec.CommandContext(ctx, "bash", "-c", installScript)
	cmd.Stdout, cmd.Stderr = &output, &output
	// A group of its own, told to stop as a whole: the script then restores the policy.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(output.String()), "\n")
		return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil
}
