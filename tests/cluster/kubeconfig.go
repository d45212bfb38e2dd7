package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig with the certificates and tokens of config. Files that config names are
// referenced. namespace is the default namespace of kubectl.
func WriteKubeconfig(path string, config *rest.Config, namespace string) error {
	const name = "incumbent"
	file := api.NewConfig()
	file.CurrentContext = name
	file.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	file.Clusters[name] = &api.Cluster{
		Server:                   config.Host,
		CertificateAuthority:     config.CAFile,
		CertificateAuthorityData: config.CAData,
		TLSServerName:            config.ServerName,
		InsecureSkipTLSVerify:    config.Insecure,
	}
	file.AuthInfos[name] = &api.AuthInfo{
		ClientCertificate:     config.CertFile,
		ClientCertificateData: config.CertData,
		ClientKey:             config.KeyFile,
		ClientKeyData:         config.KeyData,
		Token:                 config.BearerToken,
		TokenFile:             config.BearerTokenFile,
	}
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}

// unlimited removes the rate limit of the client.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}
