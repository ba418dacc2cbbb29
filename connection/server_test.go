package connection

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestParseVersion(t *testing.T) {
	for in, want := range map[string]Version{
		"3.10.8":             {3, 10, 8},
		"4.3.6":              {4, 3, 6},
		"4.0.0+2":            {4, 0, 0},
		"3.13.7-rc.1":        {3, 13, 7},
		"4.1":                {4, 1, -1},
		"4.1-rc.1":           {4, 1, -1},
		"4.2.0-rc.1+git.a-b": {4, 2, 0},
	} {
		if got, err := ParseVersion(in); err != nil || got != want {
			t.Errorf("ParseVersion(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "4", "4.", "4.x", "four.three", "4.3.6.1", "-1.0", "4.-3", "+4.3", "4.+3.1", " 4.3", "99999999999.0.0"} {
		if got, err := ParseVersion(in); err == nil || got != (Version{}) {
			t.Errorf("ParseVersion(%q) = %v, %v; want the zero version and an error", in, got, err)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("4.3.6")
	f.Add("4.3")
	f.Add("4.0.0+2")
	f.Add("3.13.7-rc.1")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVersion(s)
		if err != nil {
			return
		}
		if again, err := ParseVersion(v.String()); err != nil || again != v {
			t.Errorf("ParseVersion(%q) = %v, and of its String %v, %v", s, v, again, err)
		}
		if !v.AtLeast(v.Major, v.Minor) || v.AtLeast(v.Major+1, 0) || v.AtLeast(v.Major, v.Minor+1) {
			t.Errorf("%v is not at least itself, or at least its successor", v)
		}
	})
}

func TestVersionAtLeast(t *testing.T) {
	for _, c := range []struct {
		v            Version
		major, minor int
		want         bool
	}{
		{Version{4, 3, 6}, 4, 3, true},
		{Version{4, 3, 0}, 4, 2, true},
		{Version{4, 3, -1}, 4, 3, true},
		{Version{4, 2, 9}, 4, 3, false},
		{Version{3, 13, 7}, 4, 0, false},
		{Version{4, 0, 0}, 3, 13, true},
		{Version{3, 10, 8}, 3, 9, true},
		{Version{}, 3, 0, false},
	} {
		if got := c.v.AtLeast(c.major, c.minor); got != c.want {
			t.Errorf("(%v).AtLeast(%d, %d) = %v", c.v, c.major, c.minor, got)
		}
	}
}

func TestServerOverridesFieldByField(t *testing.T) {
	says := Server{"RabbitMQ", Version{4, 3, 6}, "shop"}
	for _, c := range []struct{ override, want Server }{
		{Server{}, says},
		{Server{Version: Version{3, 10, 8}}, Server{"RabbitMQ", Version{3, 10, 8}, "shop"}},
		{Server{"Other", Version{1, 2, 3}, "x"}, Server{"Other", Version{1, 2, 3}, "x"}},
	} {
		if got := c.override.or(says); got != c.want {
			t.Errorf("%+v over %+v is %+v, want %+v", c.override, says, got, c.want)
		}
	}
}

func TestServerOfForeignProperties(t *testing.T) {
	for name, c := range map[string]struct {
		properties amqp.Table
		want       Server
	}{
		"rabbitmq":      {amqp.Table{"product": "RabbitMQ", "version": "4.3.6", "cluster_name": "c"}, Server{"RabbitMQ", Version{4, 3, 6}, "c"}},
		"nothing":       {nil, Server{}},
		"other types":   {amqp.Table{"product": 1, "version": true, "cluster_name": nil}, Server{}},
		"not a version": {amqp.Table{"product": "Other", "version": "latest"}, Server{Product: "Other"}},
	} {
		if got := serverOf(c.properties); got != c.want {
			t.Errorf("%s: serverOf = %+v, want %+v", name, got, c.want)
		}
	}
}
