// Package webguard decides which HTTP requests a page for operators answers. Its rules are
// against other pages in the operator's browser, and take the place of no login.
package webguard

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// IsLoopback reports whether a host, without a port, is this machine by name or address.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// IsOwnHost reports whether the Host of a request is one that no stranger's DNS can point
// at this machine: localhost, an IP address, or the host in the pattern of the ServeMux
// that has passed the request on. A page of another name may be a stranger's, and for the
// browser of the same origin as the page that it gets from here.
func IsOwnHost(r *http.Request) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if IsLoopback(host) {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	// A pattern is "[METHOD ][HOST]/[PATH]". The ServeMux has compared its host.
	pattern := r.Pattern
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		pattern = strings.TrimLeft(rest, " \t")
	}
	return pattern != "" && pattern[0] != '/'
}

var origins = http.NewCrossOriginProtection()

// IsOfOtherSite reports whether a page of another origin makes a request, as
// [http.CrossOriginProtection] reports it of a POST. Programs say nothing of origins, and a
// browser says nothing where it gets an image over http from a host other than localhost. A
// Referer is not asked for, because the other page chooses whether it is sent.
func IsOfOtherSite(r *http.Request) bool {
	post := *r
	post.Method = http.MethodPost
	return origins.Check(&post) != nil
}

// IsVisit reports whether a browser shows the answer as a page of its own: somebody has
// followed a link.
func IsVisit(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// Sites passes on what is not of another site, and visits that isOpen lets in: those to
// pages without an effect.
func Sites(next http.Handler, isOpen func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if IsOfOtherSite(r) && (!IsVisit(r) || !isOpen(r)) {
			http.Error(w, "cross-origin request: a page of another site asks for this, or a proxy in between changes the Host. Open the address by itself.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Hosts passes on what [IsOwnHost] allows. To others it says advice.
func Hosts(next http.Handler, advice string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsOwnHost(r) {
			http.Error(w, advice, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
