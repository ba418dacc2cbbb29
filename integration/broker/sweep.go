package broker

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/moby/moby/client"
)

// sweepDocker removes the containers and networks of a run and returns how many
// there were.
func sweepDocker(ctx context.Context, cli client.APIClient, run string) int {
	of := make(client.Filters).Add("label", runLabel+"="+run)
	containers, err := cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: of})
	if err != nil {
		return 1 // unknown is not none
	}
	for _, c := range containers.Items {
		_ = remove(ctx, cli, c.ID) // seen again by the next sweep if it fails
	}
	networks, err := cli.NetworkList(ctx, client.NetworkListOptions{Filters: of})
	if err != nil {
		return 1
	}
	for _, n := range networks.Items {
		_ = removeNetwork(ctx, cli, n.ID)
	}
	return len(containers.Items) + len(networks.Items)
}

// sweepProcesses kills the processes of a run, removes their folders, and
// returns how many there were of both.
func sweepProcesses(run string) int {
	found := 0
	environs, _ := filepath.Glob("/proc/[0-9]*/environ") // errs for bad patterns only
	for _, path := range environs {
		environ, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+runEnv+"="+run+"\x00")) {
			continue // it has ended, or is not ours
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // seen again by the next sweep if it fails
			found++
		}
	}
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), "*-"+run+"-*"))
	for _, folder := range folders {
		_ = os.RemoveAll(folder)
	}
	return found + len(folders)
}
